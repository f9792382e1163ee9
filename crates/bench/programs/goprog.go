// A Go program for huepage's benchmarks: maps, slices, goroutines and a garbage collector at
// work, with output that depends on nothing but this text.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

type node struct {
	left, right *node
	value       uint64
}

func build(depth int, value uint64) *node {
	if depth == 0 {
		return &node{value: value}
	}
	return &node{build(depth-1, value*2+1), build(depth-1, value*2+2), value}
}

func (n *node) sum() uint64 {
	if n == nil {
		return 0
	}
	return n.value + n.left.sum() + n.right.sum()
}

func words(seed, count int) map[string]int {
	counts := make(map[string]int)
	x := uint64(seed)
	for i := 0; i < count; i++ {
		x = x*6364136223846793005 + 1442695040888963407
		counts[fmt.Sprintf("w%d", (x>>40)%50000)]++
	}
	return counts
}

func work() string {
	const workers = 4
	parts := make([]string, workers)
	var group sync.WaitGroup
	for w := 0; w < workers; w++ {
		group.Add(1)
		go func() {
			defer group.Done()
			var total uint64
			for round := 0; round < 20; round++ {
				total += build(17, uint64(w+round)).sum()
			}
			counts := words(w, 900000)
			keys := make([]string, 0, len(counts))
			for key := range counts {
				keys = append(keys, key)
			}
			sort.Strings(keys)
			parts[w] = fmt.Sprintf("%d %d %d %s", w, total, len(keys), strings.Join(keys[:3], ","))
		}()
	}
	group.Wait()
	return strings.Join(parts, "\n")
}

// The same work again and again for so many seconds, if a number of them is given.
func main() {
	seconds := 0.0
	if len(os.Args) > 1 {
		seconds, _ = strconv.ParseFloat(os.Args[1], 64)
	}
	started := time.Now()
	result := work()
	for time.Since(started).Seconds() < seconds {
		result = work()
	}
	fmt.Println(result)
}
