// Opens every page of the built site in a headless browser. It reports pages that fail or print
// errors, links and anchors that lead nowhere, pages of docs/ that no link reaches, and a search
// without results. CHROME names the browser: /usr/bin/chromium if it is not set.
import { createServer } from 'node:http'
import { readFile, readdir } from 'node:fs/promises'
import path from 'node:path'
import puppeteer from 'puppeteer-core'

const site = path.join(import.meta.dirname, 'dist')
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json', '.woff2': 'font/woff2' }
const failures = []

// serve answers with the files of the site; /page is /page.html or /page/index.html.
async function serve(request, response) {
  const url = decodeURIComponent(new URL(request.url, 'http://site').pathname)
  for (const name of [url, url + '.html', path.join(url, 'index.html')]) {
    try {
      const body = await readFile(path.join(site, name))
      response.writeHead(200, { 'content-type': types[path.extname(name)] ?? 'application/octet-stream' })
      return response.end(body)
    } catch {}
  }
  response.writeHead(404).end()
}

const server = createServer(serve).listen(0, '127.0.0.1')
await new Promise((ready) => server.once('listening', ready))
const origin = `http://127.0.0.1:${server.address().port}`
const browser = await puppeteer.launch({ executablePath: process.env.CHROME ?? '/usr/bin/chromium', args: ['--no-sandbox'] })
const page = await browser.newPage()
let current = '/'
page.on('pageerror', (e) => failures.push(`${current}: ${e}`))
page.on('console', (m) => m.type() === 'error' && failures.push(`${current}: ${m.text()} ${m.location().url ?? ''}`))

const found = new Map() // page -> ids of its headings
const wanted = [] // links: [from, page, anchor]
const queue = ['/']
while (queue.length > 0) {
  current = queue.shift()
  if (found.has(current)) continue
  found.set(current, new Set())
  const answer = await page.goto(origin + current, { waitUntil: 'networkidle0' })
  if (!answer.ok()) {
    failures.push(`${current}: status ${answer.status()}`)
    continue
  }
  found.set(current, new Set(await page.$$eval('[id]', (all) => all.map((e) => e.id))))
  for (const href of await page.$$eval('a[href]', (all) => all.map((a) => a.href))) {
    const url = new URL(href)
    if (url.origin !== origin) continue
    const target = url.pathname.replace(/\/index$|\.html$/, '') || '/'
    wanted.push([current, target, decodeURIComponent(url.hash.slice(1))])
    queue.push(target)
  }
}
for (const [from, target, anchor] of wanted) {
  if (anchor && !found.get(target)?.has(anchor)) failures.push(`${from}: ${target} has no heading #${anchor}`)
}
for (const name of await readdir(site, { recursive: true })) {
  const url = '/' + name.replace(/(^|\/)index\.html$/, '$1').replace(/\.html$/, '')
  if (name.endsWith('.html') && name !== '404.html' && !found.has(url) && !found.has(url.replace(/\/$/, ''))) failures.push(`no link leads to ${url}`)
}

await page.goto(origin, { waitUntil: 'networkidle0' })
await page.click('.DocSearch-Button')
await page.waitForSelector('.search-input')
await page.type('.search-input', 'allreduce')
await page.waitForSelector('.results .result', { timeout: 10000 }).catch(() => failures.push('the search for allreduce finds nothing'))

await browser.close()
server.close()
for (const f of new Set(failures)) console.error(f)
console.log(`${found.size} pages, ${wanted.length} links, ${new Set(failures).size} failures`)
process.exit(failures.length > 0 ? 1 : 0)
