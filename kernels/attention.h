// Parts of llama.cpp's attention on CPUs. patches.cmake puts them into ggml-cpu/ops.cpp, behind its own vector
// functions.
#pragma once

#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

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

// Whether products of tiles are computed by vector instructions.
#if defined(GGML_SIMD) && !defined(__ARM_FEATURE_SVE)
constexpr bool HAS_PRODUCTS = true;
#else
constexpr bool HAS_PRODUCTS = false;
#endif

// Whether rows of this type can be read as floats.
inline bool is_readable(ggml_type type) {
    return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
}

inline void read_row(ggml_type type, const char * from, float * to, int64_t width) {
    if (type == GGML_TYPE_F32) {
        memcpy(to, from, width * sizeof(float));
    } else if (type == GGML_TYPE_F16) {
        ggml_cpu_fp16_to_fp32((const ggml_fp16_t *) from, to, width);
    } else {
        ggml_get_type_traits(type)->to_float(from, to, width);
    }
}

// Processors do not foresee the next cell of a stream that decodes beside others: its cells lie far apart.
inline void prefetch_row(const char * row, size_t size) {
#if defined(__GNUC__)
    for (size_t line = 0; line < size; line += 64) {
        __builtin_prefetch(row + line);
    }
#endif
}

// Write eight rows of floats, `width` apart, as eight neighbouring columns of a matrix whose rows are `pitch` long.
inline void as_eight_columns(float * to, int64_t pitch, const float * from, int64_t width) {
    int64_t i = 0;
#if defined(__AVX2__)
    for (; i + 8 <= width; i += 8) {
        __m256 r[8], t[8];
        for (int k = 0; k < 8; k++) {
            r[k] = _mm256_loadu_ps(from + k * width + i);
        }
        for (int k = 0; k < 8; k += 2) {
            t[k]     = _mm256_unpacklo_ps(r[k], r[k + 1]);
            t[k + 1] = _mm256_unpackhi_ps(r[k], r[k + 1]);
        }
        for (int k = 0; k < 8; k += 4) {
            r[k]     = _mm256_shuffle_ps(t[k], t[k + 2], 0x44);
            r[k + 1] = _mm256_shuffle_ps(t[k], t[k + 2], 0xEE);
            r[k + 2] = _mm256_shuffle_ps(t[k + 1], t[k + 3], 0x44);
            r[k + 3] = _mm256_shuffle_ps(t[k + 1], t[k + 3], 0xEE);
        }
        for (int k = 0; k < 4; k++) {
            _mm256_storeu_ps(to + (i + k) * pitch, _mm256_permute2f128_ps(r[k], r[k + 4], 0x20));
            _mm256_storeu_ps(to + (i + k + 4) * pitch, _mm256_permute2f128_ps(r[k], r[k + 4], 0x31));
        }
    }
#endif
    for (; i < width; i++) {
        for (int k = 0; k < 8; k++) {
            to[i * pitch + k] = from[k * width + i];
        }
    }
}

// Write the keys of `count` cells, `stride` bytes each, as columns of a matrix of floats whose rows are `pitch` long. `rows`
// has room for eight keys.
inline void as_columns(float * to, int64_t pitch, ggml_type type, const char * keys, size_t stride, const int32_t * cells,
                       int64_t count, int64_t width, float * rows) {
    for (int64_t key = 0; key < count; key += 8) {
        const int64_t read = std::min<int64_t>(8, count - key);
        for (int64_t k = 0; k < read; k++) {
            read_row(type, keys + cells[key + k] * stride, rows + k * width, width);
        }
        if (read == 8) {
            as_eight_columns(to + key, pitch, rows, width);
            continue;
        }
        for (int64_t k = 0; k < read; k++) {
            for (int64_t i = 0; i < width; i++) {
                to[i * pitch + key + k] = rows[k * width + i];
            }
        }
    }
}

// Attention of blocks of rows: those of all heads that share keys are the rows of a product, so that keys and values are read
// once for all of them (grouped queries; Ainslie et al., 2023).
class GroupedAttention {
  public:
    static constexpr int64_t CELLS = GGML_FA_TILE_KV;
    // A batch of fewer has blocks of one row: drafts are checked in the arithmetic of single tokens.
    static constexpr int64_t FEW_ROWS = 24;
    // What a block's rows may take of a processor's cache.
    static constexpr int64_t MOST_FLOATS = 32 * 1024;

    GroupedAttention(ggml_tensor * dst, int threads)
        : dst(dst), q(dst->src[0]), k(dst->src[1]), v(dst->src[2]), mask(dst->src[3]), sinks(dst->src[4]) {
        float bias = 0.0f;
        memcpy(&scale, (float *) dst->op_params + 0, sizeof(float));
        memcpy(&bias, (float *) dst->op_params + 1, sizeof(float));
        memcpy(&softcap, (float *) dst->op_params + 2, sizeof(float));
        if (softcap != 0.0f) {
            scale /= softcap;
        }
        heads = q->ne[2] / k->ne[2];
        const bool is_few = q->ne[1] < FEW_ROWS;
        // With ALiBi each head has a mask of its own. A single head of a single row gains nothing.
        possible = HAS_PRODUCTS && !(is_few && heads == 1) && bias == 0.0f && k->ne[2] == v->ne[2] &&
                   k->ne[3] == v->ne[3] && (!mask || mask->ne[2] == 1) && q->type == GGML_TYPE_F32 &&
                   is_readable(k->type) && is_readable(v->type);
        if (possible) {
            const int64_t fitting = MOST_FLOATS / (heads * (k->ne[0] + v->ne[0] + CELLS));
            const int64_t fair    = q->ne[1] * q->ne[3] * k->ne[2] / (2 * threads);
            blocks = row_blocks(q, k, mask, is_few ? 1 : std::max<int64_t>(1, std::min(fitting, fair)));
        }
    }

    bool is_possible() const { return possible; }

    // Pairs of a block and a head of keys.
    int64_t units() const { return k->ne[2] * (int64_t) blocks.size(); }

    // Compute the units [first, last) into `dst`.
    void compute(int64_t first, int64_t last) {
        const int64_t DV = v->ne[0];
        for (int64_t unit = first; unit < last; unit++) {
            attend(unit, 0, 1);
            for (int64_t row = 0; row < rows; row++) {
                ggml_vec_scale_f32(DV, mixed + row * DV, sum[row] == 0.0f ? 0.0f : 1.0f / sum[row]);
                const int64_t place = (block->sequence * q->ne[1] + block->first + row / heads) * q->ne[2] + head_of(row);
                memcpy((char *) dst->data + place * dst->nb[1], mixed + row * DV, DV * sizeof(float));
            }
        }
    }

    // Of the only row, compute what the cells of one of `parts` contribute: for each head of queries, `stride` floats
    // apart, the largest score, the sum of weights, and the values by weight.
    void compute_part(int64_t part, int64_t parts, float * partials, int64_t stride) {
        const int64_t DV = v->ne[0];
        for (int64_t unit = 0; unit < units(); unit++) {
            attend(unit, part, parts);
            for (int64_t row = 0; row < rows; row++) {
                float * partial = partials + head_of(row) * stride;
                partial[0]      = top[row];
                partial[1]      = sum[row];
                memcpy(partial + 2, mixed + row * DV, DV * sizeof(float));
            }
        }
    }

  private:
    // The head of queries of a row of products.
    int64_t head_of(int64_t row) const { return shared * heads + row % heads; }

    void begin(int64_t unit) {
        const int64_t DK = k->ne[0];
        const int64_t DV = v->ne[0];
        if (!room) {
            int64_t most = 1;
            for (const RowBlock & each : blocks) {
                most = std::max(most, each.count);
            }
            most *= heads;
            room.reset(new float[most * (2 + DV + DK + CELLS) + CELLS * (1 + DK + std::max(DK, DV))]);
            top     = room.get();
            sum     = top + most;
            mixed   = sum + most;
            queries = mixed + most * DV;
            scores  = queries + most * DK;
            bias    = scores + most * CELLS;
            keys    = bias + CELLS;
            values  = keys + CELLS * DK;
        }
        shared = unit % k->ne[2];
        if (block != &blocks[unit / k->ne[2]]) {
            block = &blocks[unit / k->ne[2]];
            rows  = block->count * heads;
            list_cells();
        }
        std::fill_n(top, rows, -INFINITY);
        std::fill_n(sum, rows, 0.0f);
        std::fill_n(mixed, rows * DV, 0.0f);
        for (int64_t row = 0; row < rows; row++) {
            const char * from = (const char *) q->data + (block->first + row / heads) * q->nb[1] + head_of(row) * q->nb[2] +
                                block->sequence * q->nb[3];
            memcpy(queries + row * DK, from, DK * sizeof(float));
        }
    }

    void list_cells() {
        cells.clear();
        is_plain.clear();
        for (size_t word = 0; word < block->seen.size(); word++) {
            for (uint64_t bit = 1, i = 0; bit && bit <= block->seen[word]; bit <<= 1, i++) {
                if (block->seen[word] & bit) {
                    if (cells.size() % CELLS == 0) {
                        is_plain.push_back(true);
                    }
                    cells.push_back(64 * word + i);
                    is_plain.back() = is_plain.back() && (block->plain[word] & bit);
                }
            }
        }
    }

    void attend(int64_t unit, int64_t part, int64_t parts) {
        begin(unit);
        const int64_t packs = is_plain.size();
        const int64_t first = packs * part / parts;
        const int64_t last  = packs * (part + 1) / parts;
        const auto    count = [&](int64_t pack) { return pack < last ? std::min<int64_t>(CELLS, cells.size() - pack * CELLS) : 0; };
        prefetch(k, cells.data() + first * CELLS, count(first));
        for (int64_t pack = first; pack < last; pack++) {
            add_cells(cells.data() + pack * CELLS, count(pack), count(pack + 1), is_plain[pack]);
        }
        if (sinks && part == 0) {
            add_sinks();
        }
    }

    // The rows of keys or values that belong to the unit.
    const char * rows_of(const ggml_tensor * x) const {
        const int64_t i3 = block->sequence / (q->ne[3] / k->ne[3]);
        return (const char *) x->data + shared * x->nb[2] + i3 * x->nb[3];
    }

    void prefetch(const ggml_tensor * x, const int32_t * from, int64_t count) const {
        const char * start = rows_of(x);
        const size_t size  = ggml_row_size(x->type, x->ne[0]);
        for (int64_t i = 0; i < count; i++) {
            prefetch_row(start + from[i] * x->nb[1], size);
        }
    }

    // next: how many cells follow these. Memory reads what comes next while the products are computed.
    void add_cells(const int32_t * from, int64_t count, int64_t next, bool plain) {
        const int64_t DK = k->ne[0];
        const int64_t DV = v->ne[0];
        as_columns(keys, CELLS, k->type, rows_of(k), k->nb[1], from, count, DK, values);
        prefetch(v, from, count);
        std::fill_n(scores, rows * CELLS, 0.0f);
        simd_gemm(scores, queries, keys, rows, DK, CELLS);
        ggml_vec_scale_f32(rows * CELLS, scores, scale);
        if (softcap != 0.0f) {
            ggml_vec_tanh_f32(rows * CELLS, scores, scores);
            ggml_vec_scale_f32(rows * CELLS, scores, softcap);
        }
        for (int64_t row = 0; row < rows; row++) {
            if (!plain || count < CELLS) {
                hide(row, from, count);
            }
            weigh(row);
        }
        const char * start = rows_of(v);
        for (int64_t i = 0; i < count; i++) {
            read_row(v->type, start + from[i] * v->nb[1], values + i * DV, DV);
        }
        prefetch(k, from + CELLS, next);
        std::fill_n(values + count * DV, (CELLS - count) * DV, 0.0f);
        simd_gemm(mixed, scores, values, rows, CELLS, DV);
    }

    // Add the mask to a row of scores. What lies behind `count` may be anything.
    void hide(int64_t row, const int32_t * from, int64_t count) {
        if (row % heads == 0) {
            const auto * values = mask ? (const uint16_t *) ((const char *) mask->data + (block->first + row / heads) * mask->nb[1] +
                                                             block->sequence % mask->ne[3] * mask->nb[3]) : nullptr;
            for (int64_t i = 0; i < CELLS; i++) {
                bias[i] = i >= count ? -INFINITY : values ? GGML_CPU_FP16_TO_FP32(values[from[i]]) : 0.0f;
            }
        }
        float * ours = scores + row * CELLS;
        for (int64_t i = 0; i < CELLS; i++) {
            ours[i] = bias[i] == -INFINITY ? -INFINITY : ours[i] + bias[i];
        }
    }

    // Scores become weights, relative to the largest score up to here (online softmax; Milakov and Gimelshein, 2018).
    void weigh(int64_t row) {
        float * ours = scores + row * CELLS;
        float   most;
        ggml_vec_max_f32(CELLS, &most, ours);
        if (most > top[row]) {
            const float kept = expf(top[row] - most);
            ggml_vec_scale_f32(v->ne[0], mixed + row * v->ne[0], kept);
            sum[row] *= kept;
            top[row] = most;
        }
        if (top[row] == -INFINITY) {
            std::fill_n(ours, CELLS, 0.0f);
        } else {
            sum[row] += ggml_vec_soft_max_f32(CELLS, ours, ours, top[row]);
        }
    }

    void add_sinks() {
        for (int64_t row = 0; row < rows; row++) {
            const float sink = ((const float *) sinks->data)[head_of(row)];
            const float most = std::max(top[row], sink);
            const float kept = expf(top[row] - most);
            ggml_vec_scale_f32(v->ne[0], mixed + row * v->ne[0], kept);
            sum[row] = sum[row] * kept + expf(sink - most);
            top[row] = most;
        }
    }

    ggml_tensor *         dst;
    const ggml_tensor *   q;
    const ggml_tensor *   k;
    const ggml_tensor *   v;
    const ggml_tensor *   mask;
    const ggml_tensor *   sinks;
    float                 scale    = 1.0f;
    float                 softcap  = 0.0f;
    int64_t               heads    = 1;
    bool                  possible = false;
    std::vector<RowBlock> blocks;

    // Of the unit that is computed.
    const RowBlock *     block  = nullptr;
    int64_t              shared = 0;  // head of keys
    int64_t              rows   = 0;  // of products: for each row of the block, one for each of its heads
    std::vector<int32_t> cells;
    std::vector<bool>    is_plain;  // for each CELLS of them: whether all rows see all of them as they are

    std::unique_ptr<float[]> room;
    float *                  top     = nullptr;  // for each row: the largest score up to here,
    float *                  sum     = nullptr;  // the sum of weights,
    float *                  mixed   = nullptr;  // and the values by weight
    float *                  queries = nullptr;
    float *                  scores  = nullptr;  // (rows, CELLS)
    float *                  bias    = nullptr;  // the mask of the cells
    float *                  keys    = nullptr;  // (width, CELLS)
    float *                  values  = nullptr;  // (CELLS, width)
};

}  // namespace jan_serve
