// Which rows of an attention are computed together, and which cells they read in which order.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cell_order.h"

namespace jan_serve {

// Half-precision values of a mask: minus infinity hides a cell, 0 leaves its score as it is.
constexpr uint16_t HIDDEN = 0xFC00;

// Whether `count` neighbouring cells of a row are all hidden.
inline bool all_hidden(const uint16_t * cells, int64_t count) {
    uint16_t differs = 0;
    for (int64_t i = 0; i < count; i++) {
        differs |= cells[i] ^ HIDDEN;
    }
    return differs == 0;
}

// A set of cells, 64 in each word.
using CellSet = std::vector<uint64_t>;

inline void list_members(const CellSet & set, std::vector<int32_t> & members) {
    members.clear();
    for (size_t word = 0; word < set.size(); word++) {
        for (uint64_t bit = 1, i = 0; bit && bit <= set[word]; bit <<= 1, i++) {
            if (set[word] & bit) {
                members.push_back(64 * word + i);
            }
        }
    }
}

// Which of up to 64 values of a mask do not hide their cells (`seen`), and which leave their scores as they are (`plain`).
inline void read_mask(const uint16_t * values, int64_t count, uint64_t & seen, uint64_t & plain) {
    uint16_t differs = 0;
    uint16_t set     = 0;
    for (int64_t i = 0; i < count; i++) {
        differs |= values[i] ^ HIDDEN;
        set |= values[i];
    }
    // Most masks end here: all cells of a run are of one sequence.
    seen = plain = differs && !set ? ~0ull >> (64 - count) : 0;
    if (differs && set) {
        for (int64_t i = 0; i < count; i++) {
            seen |= (uint64_t) (values[i] != HIDDEN) << i;
            plain |= (uint64_t) (values[i] == 0) << i;
        }
    }
}

// Neighbouring rows of a batch that see mostly the same cells.
struct RowBlock {
    int64_t sequence = 0;
    int64_t first    = 0;
    int64_t count    = 1;
    CellSet seen;   // by any of its rows
    CellSet plain;  // by all of them, with their scores as they are
};

// One cache holds the cells of all sequences, those of streams that run together by turns. So the rows of an operation are
// divided into blocks, at most `most` rows each, and a block reads the cells that its rows see and no others.
inline std::vector<RowBlock> row_blocks(const ggml_tensor * q, const ggml_tensor * k, const ggml_tensor * mask, int64_t most) {
    const int64_t         cells = k->ne[1];
    const size_t          words = (cells + 63) / 64;
    std::vector<RowBlock> blocks;
    RowBlock              row;
    const auto size = [](const CellSet & set) {
        int64_t count = 0;
        for (uint64_t word : set) {
            count += std::bitset<64>(word).count();
        }
        return count;
    };
    for (row.sequence = 0; row.sequence < q->ne[3]; row.sequence++) {
        for (row.first = 0; row.first < q->ne[1]; row.first++) {
            row.seen.assign(words, 0);
            row.plain.assign(words, 0);
            const uint16_t * values = mask ? (const uint16_t *) ((const char *) mask->data + row.first * mask->nb[1] +
                                                                 row.sequence % mask->ne[3] * mask->nb[3]) : nullptr;
            for (size_t word = 0; word < words; word++) {
                const int64_t count = std::min<int64_t>(64, cells - 64 * word);
                if (values) {
                    read_mask(values + 64 * word, count, row.seen[word], row.plain[word]);
                } else {
                    row.seen[word] = row.plain[word] = ~0ull >> (64 - count);
                }
            }
            RowBlock * last = blocks.empty() ? nullptr : &blocks.back();
            if (last && last->sequence == row.sequence && last->count < most) {
                CellSet both = row.seen;
                for (size_t word = 0; word < words; word++) {
                    both[word] &= last->seen[word];
                }
                if (std::max(size(row.seen), size(last->seen)) <= 2 * size(both)) {
                    for (size_t word = 0; word < words; word++) {
                        last->seen[word] |= row.seen[word];
                        last->plain[word] &= row.plain[word];
                    }
                    last->count++;
                    continue;
                }
            }
            blocks.push_back(row);
        }
    }
    return blocks;
}

// Neighbouring listed cells that are multiplied at once.
struct Pack {
    int64_t first;  // of the list
    int64_t count;
    bool    is_plain;  // whether all rows see all of them as they are
};

// The cells of a block by their places in their sequences, whatever cells these are, in packs of at most `MOST`. A segment of
// packs has SEGMENT places, so where a segment begins does not depend on the other rows either.
struct CellList {
    static constexpr int64_t MOST    = 64;
    static constexpr int64_t SEGMENT = 256;

    std::vector<int32_t> cells;
    std::vector<Pack>    packs;
    std::vector<int64_t> segments;  // the first pack of each, and the number of packs

    int64_t num_segments() const { return (int64_t) segments.size() - 1; }

    // Packs of the largest segment.
    int64_t most_packs() const {
        int64_t most = 0;
        for (int64_t i = 0; i < num_segments(); i++) {
            most = std::max(most, segments[i + 1] - segments[i]);
        }
        return most;
    }

    // mask: that of the operation, if any. Without an order of its own, a sequence's cells lie in their places.
    void list(const RowBlock & block, const ggml_tensor * mask, int64_t count) {
        const int32_t * keys =
            mask && mask->extra ? (const int32_t *) mask->extra + block.sequence % mask->ne[3] * CellOrder::ARRAYS * count : nullptr;
        list_members(block.seen, cells);
        if (keys) {
            sort(keys + count, keys + 2 * count, block.seen.size());
        }
        packs.clear();
        segments.clear();
        int64_t last = -1;
        for (size_t i = 0; i < cells.size(); i++) {
            const int64_t segment = (keys ? keys[cells[i]] : cells[i]) / SEGMENT;
            if (segment != last) {
                segments.push_back(packs.size());
            }
            if (segment != last || packs.back().count == MOST) {
                packs.push_back({ (int64_t) i, 0, true });
            }
            last = segment;
            packs.back().count++;
            packs.back().is_plain = packs.back().is_plain && (block.plain[cells[i] / 64] >> cells[i] % 64 & 1);
        }
        segments.push_back(packs.size());
    }

  private:
    // By the ranks of the cells, which are different numbers: so a set of them is sorted.
    void sort(const int32_t * ranks, const int32_t * by_rank, size_t words) {
        if (std::is_sorted(cells.begin(), cells.end(), [&](int32_t a, int32_t b) { return ranks[a] < ranks[b]; })) {
            return;
        }
        CellSet set(words, 0);
        for (int32_t cell : cells) {
            set[ranks[cell] / 64] |= 1ull << ranks[cell] % 64;
        }
        list_members(set, cells);
        for (int32_t & cell : cells) {
            cell = by_rank[cell];
        }
    }
};

}  // namespace jan_serve
