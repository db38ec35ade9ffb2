// The documentation site: `make docs` builds it into docs/.vitepress/dist.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { defineConfig } from 'vitepress'

const docs = path.resolve(import.meta.dirname, '..')
const repository = 'https://github.com/symgrad/symgrad'

// sidebar has the sections and pages that README.md lists.
function sidebar() {
  const sections = []
  for (const line of readFileSync(path.join(docs, 'README.md'), 'utf8').split('\n')) {
    const heading = line.match(/^## (.*)/)
    const page = line.match(/^- \[(.*?)\]\((.*?)\)/)
    if (heading) sections.push({ text: heading[1], items: [] })
    if (page && !page[2].startsWith('..')) sections.at(-1).items.push({ text: page[1], link: '/' + page[2].replace(/README\.md$/, '') })
  }
  return sections
}

// linkToRepository points links that leave docs/ to the repository, and those to a README.md to the
// page of its folder.
function linkToRepository(md) {
  md.core.ruler.push('repository', (state) => {
    for (const token of state.tokens.flatMap((t) => t.children ?? [])) {
      const href = token.type === 'link_open' && token.attrGet('href')
      if (!href || /^([a-z]+:|#|\/)/.test(href)) continue
      const file = path.join(path.dirname(path.join(docs, state.env.relativePath)), href)
      if (!file.startsWith(docs + path.sep)) {
        token.attrSet('href', `${repository}/blob/main/${path.relative(path.dirname(docs), file)}`)
      } else {
        token.attrSet('href', href.replace(/README\.md(?=#|$)/, 'index.md'))
      }
    }
  })
}

export default defineConfig({
  title: 'symgrad',
  description: 'Distributed training for Gorgonia',
  lang: 'en',
  cleanUrls: true,
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  rewrites: { 'README.md': 'index.md', ':folder/README.md': ':folder/index.md' },
  srcExclude: ['node_modules/**'],
  markdown: { config: linkToRepository },
  themeConfig: {
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
  },
})
