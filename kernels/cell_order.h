// In which order attention adds up the cells of a cache. patches.cmake lets libllama write it beside each mask, and attention.h
// reads it there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace jan_serve {

// A sequence's tokens lie in whatever cells were free. So that a sum does not depend on that, each cell has a place in its
// sequence (`keys`), and the cells that a mask covers are sorted by it. `extra` of a mask points to `values`.
class CellOrder {
  public:
    static constexpr int64_t ARRAYS = 3;  // of int32_t for each stream of a mask: keys and ranks by cell, cells by rank

    // Sort the `count` cells of one of the mask's streams, which are llama.cpp's `cells`. batch: its rows.
    template <class Cells, class Batch> void sort(int64_t stream, int64_t count, const Cells & cells, const Batch & batch) {
        places.assign(count, INT32_MAX);
        for (int64_t cell = 0; cell < count; cell++) {
            if (!cells.is_empty(cell)) {
                places[cell] = cells.pos_get(cell);
            }
        }
        if (batch.is_pos_2d()) {
            number(cells, batch);
        }
        sort(stream, count, places.data());
    }

    // Sort `count` cells by their places in their sequences.
    void sort(int64_t stream, int64_t count, const int32_t * places) {
        entries.resize(count);
        for (int64_t cell = 0; cell < count; cell++) {
            entries[cell] = (uint64_t) (uint32_t) places[cell] << 32 | (uint64_t) cell;
        }
        if (!std::is_sorted(entries.begin(), entries.end())) {
            std::sort(entries.begin(), entries.end());
        }
        values.resize(std::max<size_t>(values.size(), (stream + 1) * ARRAYS * count));
        int32_t * keys = values.data() + stream * ARRAYS * count;
        for (int64_t rank = 0; rank < count; rank++) {
            const int32_t cell     = (int32_t) (uint32_t) entries[rank];
            keys[cell]             = places[cell];
            keys[count + cell]     = (int32_t) rank;
            keys[2 * count + rank] = cell;
        }
    }

    // For `extra` of the mask, until the next `sort`.
    void * data() { return values.data(); }

  private:
    // Tokens of an image share a position. So each sequence's cells are counted, in the order of its tokens.
    template <class Cells, class Batch> void number(const Cells & cells, const Batch & batch) {
        std::vector<uint32_t> used;
        for (size_t cell = 0; cell < places.size(); cell++) {
            if (!cells.is_empty(cell)) {
                used.push_back(cell);
            }
        }
        std::sort(used.begin(), used.end(), [&](uint32_t a, uint32_t b) {
            const auto & first = cells.ext_get(a);
            return places[a] != places[b] ? places[a] < places[b] : cells.ext_get(b).is_2d_gt(first.x, first.y);
        });
        for (uint32_t i = 0; i < batch.n_seqs_unq; i++) {
            int32_t place = 0;
            for (uint32_t cell : used) {
                if (cells.seq_has(cell, batch.seq_id_unq[i])) {
                    places[cell] = place++;
                }
            }
        }
    }

    std::vector<int32_t>  places;
    std::vector<int32_t>  values;
    std::vector<uint64_t> entries;
};

}  // namespace jan_serve
