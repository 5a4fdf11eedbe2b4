package main

import (
	"math"
	"sort"

	"github.com/anishathalye/porcupine"
)

// An action is the input of an operation: a tenure begins, ends, or does both.
type action struct {
	tenure       *tenure
	begins, ends bool
}

// A tenure is two operations. It began between the call of the acquire and its return, and ended between the last moment
// at which its holder saw it held and the success of the release, whether it was released or lost.
//
// No time is known by which a lost tenure had ended. But it had when the next one that it excludes began. Since the next
// one is the one with the next token, which the models demand, this takes no order from those that they allow.
//
// A tenure that nobody saw held is one operation: its lease may have been over when the acquire returned.
func operations(read *history) []porcupine.Operation {
	ended := nextGrants(read.tenures)
	all := make([]porcupine.Operation, 0, 2*len(read.tenures))
	for index := range read.tenures {
		one := &read.tenures[index]
		begin := action{tenure: one, begins: true, ends: one.Until == nil}
		all = append(all, porcupine.Operation{ClientId: index, Input: begin, Call: one.Called, Return: one.From})
		if one.Until == nil {
			continue
		}
		last, end := *one.Until, ended[index]
		if one.Released != nil {
			end = *one.Released
		}
		if end < last {
			// It was held when the next one began already: no order of the operations has that.
			end = last
		}
		all = append(all, porcupine.Operation{ClientId: index, Input: action{tenure: one, ends: true}, Call: last, Return: end})
	}
	return all
}

// Returns for each tenure when the next one that it excludes was granted.
func nextGrants(tenures []tenure) []int64 {
	next := make([]int64, len(tenures))
	for index := range next {
		next[index] = math.MaxInt64
	}
	// The parts of a lock that are held alone: all of it, or a slot.
	type claim struct {
		index int
		token uint64
	}
	parts := map[int][]claim{}
	for index, one := range tenures {
		if one.Share != "slots" {
			parts[-1] = append(parts[-1], claim{index, one.Token})
		}
		for _, slot := range one.Slots {
			parts[slot.Number] = append(parts[slot.Number], claim{index, slot.Token})
		}
	}
	for _, claims := range parts {
		// From the last token to the first.
		sort.Slice(claims, func(a, b int) bool { return claims[a].token > claims[b].token })
		// The earliest return among the tenures with the next token: of any, and of those that are no reader's.
		any, alone := int64(math.MaxInt64), int64(math.MaxInt64)
		for start := 0; start < len(claims); {
			end := start
			for end < len(claims) && claims[end].token == claims[start].token {
				end++
			}
			laterAny, laterAlone := int64(math.MaxInt64), alone
			for _, one := range claims[start:end] {
				from, reads := tenures[one.index].From, tenures[one.index].Share == "read"
				until := any
				if reads {
					until = alone
				}
				if until < next[one.index] {
					next[one.index] = until
				}
				if from < laterAny {
					laterAny = from
				}
				if !reads {
					laterAlone = from
				}
			}
			any, alone = laterAny, laterAlone
			start = end
		}
	}
	return next
}

// Cuts a history at its quiet points, at which no operation is under way. All operations before such a point come before
// all operations after it, so the parts can be judged one by one.
func cut(all []porcupine.Operation) [][]porcupine.Operation {
	sort.SliceStable(all, func(a, b int) bool { return all[a].Call < all[b].Call })
	var parts [][]porcupine.Operation
	start, end := 0, int64(math.MinInt64)
	for index, operation := range all {
		if index > start && operation.Call > end {
			parts = append(parts, all[start:index])
			start = index
		}
		if operation.Return > end {
			end = operation.Return
		}
	}
	if start < len(all) {
		parts = append(parts, all[start:])
	}
	return parts
}
