package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write stories.txt anew")

// storiesBytes is about how long the text is.
const storiesBytes = 100_000

// TestStoriesAreWhatTheGrammarGives: the included text has no other author, because these few rules
// generate all of it.
func TestStoriesAreWhatTheGrammarGives(t *testing.T) {
	want := stories(storiesBytes)
	if *rewrite {
		if err := os.WriteFile("stories.txt", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("stories.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("stories.txt has %d bytes and the grammar gives %d others: see the difference after -rewrite", len(got), len(want))
	}
	if len(got) > 2*storiesBytes {
		t.Errorf("stories.txt has %d bytes", len(got))
	}
}

// The words that stories are made of.
var (
	days    = []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
	names   = []string{"Anna", "Berta", "Clara", "Dora", "Emma", "Albert", "Bruno", "Carl", "David", "Emil"} // the first half are women
	trades  = []string{"baker", "miller", "fisher", "weaver", "gardener", "potter"}
	goods   = [][2]string{{"loaf", "loaves"}, {"sack of flour", "sacks of flour"}, {"trout", "trout"}, {"blanket", "blankets"}, {"cabbage", "cabbages"}, {"jug", "jugs"}}
	places  = []string{"the market", "the castle", "the harbour", "the mill", "the inn", "the village"}
	beasts  = []string{"goose", "fox", "hare", "donkey", "raven", "cat"}
	looks   = []string{"old", "grey", "hungry", "clever", "tired", "small"}
	weather = []string{"The sun was shining", "It was raining", "The wind was cold", "Snow lay on the road", "The road was dry"}
	partsOf = []string{"in the morning", "at noon", "in the afternoon", "before dawn"}
	numbers = []string{"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"}
)

// stories returns at least size bytes of small stories. Each is consistent: names keep their sex,
// traders keep their goods, and the numbers add up, so a model can learn more than spelling.
func stories(size int) []byte {
	rng := rand.New(rand.NewPCG(7, 11))
	var b bytes.Buffer
	for b.Len() < size {
		b.WriteString(story(rng))
		b.WriteString("\n\n")
	}
	return b.Bytes()
}

func pick(rng *rand.Rand, from []string) string { return from[rng.IntN(len(from))] }

// count is "one loaf" or "seven loaves".
func count(n int, good [2]string) string {
	if n == 1 {
		return "one " + good[0]
	}
	return numbers[n] + " " + good[1]
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func story(rng *rand.Rand) string {
	who := rng.IntN(len(names))
	she, her := "she", "her"
	if who >= len(names)/2 {
		she, her = "he", "his"
	}
	trade := rng.IntN(len(trades))
	good, place := goods[trade], pick(rng, places)
	beast := pick(rng, looks) + " " + pick(rng, beasts)
	article := "a"
	if beast[0] == 'o' {
		article = "an"
	}
	all := 3 + rng.IntN(10)
	given := 1 + rng.IntN(all-1)
	var s []string
	say := func(format string, args ...any) { s = append(s, fmt.Sprintf(format, args...)) }

	say("On %s %s %s the %s went to %s.", pick(rng, days), pick(rng, partsOf), names[who], trades[trade], place)
	if rng.IntN(2) == 0 {
		say("%s.", pick(rng, weather))
	}
	say("%s carried %s in %s basket.", title(she), count(all, good), her)
	say("On the way %s met %s %s.", she, article, beast)
	say("\"Where are you going?\" asked the %s.", beast)
	say("\"To %s, with %s,\" said %s.", place, count(all, good), names[who])
	if rng.IntN(3) > 0 {
		say("\"Give me %s,\" said the %s, \"and I will show you the way.\"", count(given, good), beast)
		say("So %s gave it %s, and %s left.", names[who], count(given, good), were(all-given, good))
		say("The %s showed %s the way to %s.", beast, map[bool]string{true: "her", false: "him"}[she == "she"], place)
	} else {
		say("\"I know the way,\" said the %s, \"and I want nothing for it.\"", beast)
		say("So %s kept all %s.", names[who], count(all, good))
	}
	return strings.Join(s, " ")
}

// were is "seven loaves were", "one loaf was".
func were(n int, good [2]string) string {
	if n == 1 {
		return count(n, good) + " was"
	}
	return count(n, good) + " were"
}
