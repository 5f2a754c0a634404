// Parts of llama.cpp's attention on CPUs. patches.cmake puts them into ggml-cpu/ops.cpp, behind its own vector
// functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "row_blocks.h"

namespace jan_serve {

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

// Write eight rows of `width` floats, `stride` apart, as eight neighbouring columns of a matrix whose rows are `pitch` long.
inline void as_eight_columns(float * to, int64_t pitch, const float * from, int64_t stride, int64_t width) {
    int64_t i = 0;
#if defined(__AVX2__)
    for (; i + 8 <= width; i += 8) {
        __m256 r[8], t[8];
        for (int k = 0; k < 8; k++) {
            r[k] = _mm256_loadu_ps(from + k * stride + i);
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
            to[i * pitch + k] = from[k * stride + i];
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
            as_eight_columns(to + key, pitch, rows, width, width);
            continue;
        }
        for (int64_t k = 0; k < read; k++) {
            for (int64_t i = 0; i < width; i++) {
                to[i * pitch + key + k] = rows[k * width + i];
            }
        }
    }
}

// What one row of queries gets from some of its cells: the largest score, the sum of weights relative to it, and the values
// by weight.
struct Share {
    float * top;
    float * sum;
    float * mixed;

    // Forget all cells. width: of a value.
    void clear(int64_t width) const {
        *top = -INFINITY;
        *sum = 0.0f;
        std::fill_n(mixed, width, 0.0f);
    }

    // Add what further cells give (online softmax; Milakov and Gimelshein, 2018).
    void add(const Share & more, int64_t width) const {
        if (*more.top == -INFINITY) {
            return;
        }
        // One of the two is 1.
        const float most  = std::max(*top, *more.top);
        const float kept  = *top == most ? 1.0f : expf(*top - most);
        const float added = *more.top == most ? 1.0f : expf(*more.top - most);
        if (kept != 1.0f) {
            ggml_vec_scale_f32(width, mixed, kept);
        }
        ggml_vec_mad_f32(width, mixed, more.mixed, added);
        *sum = *sum * kept + *more.sum * added;
        *top = most;
    }
};

// The sum of weights of at most 1, in units of 2^-24: integers have the same sum in any order, and with others between them
// that are 0.
inline int32_t fixed_sum(const float * weights, int64_t count) {
    int32_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (int32_t) (weights[i] * 16777216.0f + 0.5f);
    }
    return sum;
}

// Attention of blocks of rows: those of all heads that share keys are the rows of a product, so that keys and values are read
// once for all of them (grouped queries; Ainslie et al., 2023).
//
// What a row gets depends on the values and the order of its own cells and on nothing else: a product adds up its terms one
// by one, hidden cells add exactly 0, weights are relative to the largest score of a segment, and segments are added in their
// order, whichever thread computes them.
class GroupedAttention {
  public:
    static constexpr int64_t CELLS = CellList::MOST;
    // What a block's rows may take of a processor's cache.
    static constexpr int64_t MOST_FLOATS = 56 * 1024;

    // room: bytes of the operation's buffer.
    GroupedAttention(ggml_tensor * dst, int threads, size_t room)
        : dst(dst), q(dst->src[0]), k(dst->src[1]), v(dst->src[2]), mask(dst->src[3]), sinks(dst->src[4]) {
        memcpy(&scale, (float *) dst->op_params + 0, sizeof(float));
        memcpy(&most_bias, (float *) dst->op_params + 1, sizeof(float));
        memcpy(&softcap, (float *) dst->op_params + 2, sizeof(float));
        if (softcap != 0.0f) {
            scale /= softcap;
        }
        heads    = q->ne[2] / k->ne[2];
        possible = HAS_PRODUCTS && k->ne[2] == v->ne[2] && k->ne[3] == v->ne[3] && (!mask || mask->ne[2] == 1) &&
                   q->type == GGML_TYPE_F32 && is_readable(k->type) && is_readable(v->type);
        if (possible) {
            const int64_t fitting = MOST_FLOATS / (heads * (k->ne[0] + 2 * v->ne[0] + CellList::SEGMENT));
            const int64_t fair    = q->ne[1] * q->ne[3] * k->ne[2] / (2 * threads);
            blocks  = row_blocks(q, k, mask, std::max<int64_t>(1, std::min(fitting, fair)));
            divided = threads > 1 && blocks.size() == 1 && blocks[0].count == 1 && begin_block(0) &&
                      listed.num_segments() > 1 && parts_size(dst, listed.num_segments()) <= room;
        }
    }

    // Bytes of what the segments of a lone row give, for so many segments.
    static size_t parts_size(const ggml_tensor * dst, int64_t segments) {
        return segments * dst->src[0]->ne[2] * (2 + dst->src[2]->ne[0]) * sizeof(float);
    }

    bool is_possible() const { return possible; }

    // Whether the segments of a lone row are divided between threads. All of them decide alike.
    bool is_divided() const { return divided; }

    // Pairs of a block and a head of keys.
    int64_t units() const { return k->ne[2] * (int64_t) blocks.size(); }

    // Compute the units [first, last) into `dst`.
    void compute(int64_t first, int64_t last) {
        for (int64_t unit = first; unit < last; unit++) {
            begin(unit);
            prefetch(k, 0);
            for (int64_t row = 0; row < rows; row++) {
                whole(row).clear(v->ne[0]);
            }
            for (int64_t segment = 0; segment < listed.num_segments(); segment++) {
                attend(segment);
                for (int64_t row = 0; row < rows; row++) {
                    whole(row).add(part(row), v->ne[0]);
                }
            }
            for (int64_t row = 0; row < rows; row++) {
                finish(whole(row), head_of(row), block->sequence * q->ne[1] + block->first + row / heads);
            }
        }
    }

    // Compute one thread's part of the segments of a lone row into `parts`.
    void compute_parts(float * parts, int thread, int threads) {
        const int64_t count = k->ne[2] * listed.num_segments();
        const int64_t last  = count * (thread + 1) / threads;
        for (int64_t i = count * thread / threads; i < last; i++) {
            const int64_t segment = i % listed.num_segments();
            if (segment == 0 || i == count * thread / threads) {
                begin(i / listed.num_segments());
                prefetch(k, listed.segments[segment]);
            }
            attend(segment);
            for (int64_t row = 0; row < rows; row++) {
                const Share to = part_in(parts, head_of(row), segment);
                *to.top        = *part(row).top;
                *to.sum        = *part(row).sum;
                memcpy(to.mixed, part(row).mixed, v->ne[0] * sizeof(float));
            }
        }
    }

    // Once all threads have computed theirs: add up the segments of one thread's heads of queries.
    void join_parts(float * parts, int thread, int threads) {
        const int64_t count = q->ne[2];
        for (int64_t head = count * thread / threads; head < count * (thread + 1) / threads; head++) {
            const Share sum = part_in(parts, head, 0);
            for (int64_t segment = 1; segment < listed.num_segments(); segment++) {
                sum.add(part_in(parts, head, segment), v->ne[0]);
            }
            finish(sum, head, 0);
        }
    }

  private:
    // The head of queries of a row of products.
    int64_t head_of(int64_t row) const { return shared * heads + row % heads; }

    // What the cells up to here give a row of products.
    Share whole(int64_t row) { return { &tops[row], &sums[row], &mixed[row * v->ne[0]] }; }

    // What the cells of the latest segment give it.
    Share part(int64_t row) { return { &tops[rows + row], &sums[rows + row], &mixed[(rows + row) * v->ne[0]] }; }

    Share part_in(float * parts, int64_t head, int64_t segment) const {
        float * from = parts + (head * listed.num_segments() + segment) * (2 + v->ne[0]);
        return { from, from + 1, from + 2 };
    }

    // Write what a row of queries gets. place: of the row.
    void finish(const Share & share, int64_t head, int64_t place) const {
        if (sinks) {
            const float sink = ((const float *) sinks->data)[head];
            const float most = std::max(*share.top, sink);
            const float kept = expf(*share.top - most);
            ggml_vec_scale_f32(v->ne[0], share.mixed, kept);
            *share.sum = *share.sum * kept + expf(sink - most);
        }
        ggml_vec_scale_f32(v->ne[0], share.mixed, *share.sum == 0.0f ? 0.0f : 1.0f / *share.sum);
        memcpy((char *) dst->data + (place * q->ne[2] + head) * dst->nb[1], share.mixed, v->ne[0] * sizeof(float));
    }

    // List the cells of a block, if they are not yet.
    bool begin_block(int64_t index) {
        if (block != &blocks[index]) {
            block = &blocks[index];
            rows  = block->count * heads;
            listed.list(*block, mask, k->ne[1]);
            tops.resize(2 * rows);
            sums.resize(2 * rows);
            mixed.resize(2 * rows * v->ne[0]);
            queries.resize(rows * k->ne[0]);
            scores.resize(listed.most_packs() * rows * CELLS);
        }
        return true;
    }

    void begin(int64_t unit) {
        const int64_t DK = k->ne[0];
        begin_block(unit / k->ne[2]);
        shared = unit % k->ne[2];
        keys.resize(CELLS * DK);
        values.resize(CELLS * std::max(DK, v->ne[0]));
        for (int64_t row = 0; row < rows; row++) {
            const char * from = (const char *) q->data + (block->first + row / heads) * q->nb[1] + head_of(row) * q->nb[2] +
                                block->sequence * q->nb[3];
            memcpy(&queries[row * DK], from, DK * sizeof(float));
        }
    }

    // The rows of keys or values that belong to the unit.
    const char * rows_of(const ggml_tensor * x) const {
        const int64_t i3 = block->sequence / (q->ne[3] / k->ne[3]);
        return (const char *) x->data + shared * x->nb[2] + i3 * x->nb[3];
    }

    // Memory reads what comes next while products are computed.
    void prefetch(const ggml_tensor * x, int64_t pack) const {
        if (pack < (int64_t) listed.packs.size()) {
            const char * start = rows_of(x);
            const size_t size  = ggml_row_size(x->type, x->ne[0]);
            for (int64_t i = 0; i < listed.packs[pack].count; i++) {
                prefetch_row(start + listed.cells[listed.packs[pack].first + i] * x->nb[1], size);
            }
        }
    }

    // Compute what a segment gives each row of products.
    void attend(int64_t segment) {
        const int64_t first = listed.segments[segment];
        const int64_t last  = listed.segments[segment + 1];
        for (int64_t pack = first; pack < last; pack++) {
            pack + 1 < last ? prefetch(k, pack + 1) : prefetch(v, first);
            score(listed.packs[pack], &scores[(pack - first) * rows * CELLS]);
        }
        for (int64_t row = 0; row < rows; row++) {
            weigh(row, last - first);
        }
        std::fill_n(part(0).mixed, rows * v->ne[0], 0.0f);
        for (int64_t pack = first; pack < last; pack++) {
            pack + 1 < last ? prefetch(v, pack + 1) : prefetch(k, last);
            mix(listed.packs[pack], &scores[(pack - first) * rows * CELLS]);
        }
    }

    // The scores of a pack's cells. Those behind its last one are minus infinity.
    void score(const Pack & pack, float * to) {
        const int64_t   DK   = k->ne[0];
        const int32_t * from = &listed.cells[pack.first];
        as_columns(keys.data(), CELLS, k->type, rows_of(k), k->nb[1], from, pack.count, DK, values.data());
        std::fill_n(to, rows * CELLS, 0.0f);
        simd_gemm(to, queries.data(), keys.data(), rows, DK, CELLS);
        ggml_vec_scale_f32(rows * CELLS, to, scale);
        if (softcap != 0.0f) {
            ggml_vec_tanh_f32(rows * CELLS, to, to);
            ggml_vec_scale_f32(rows * CELLS, to, softcap);
        }
        for (int64_t row = 0; row < rows && !(pack.is_plain && pack.count == CELLS); row++) {
            hide(row, from, pack.count, to + row * CELLS);
        }
    }

    // Add the mask to a row of scores. What lies behind `count` may be anything.
    void hide(int64_t row, const int32_t * from, int64_t count, float * to) {
        if (row % heads == 0) {
            const auto * halves = mask ? (const uint16_t *) ((const char *) mask->data + (block->first + row / heads) * mask->nb[1] +
                                                             block->sequence % mask->ne[3] * mask->nb[3]) : nullptr;
            for (int64_t i = 0; i < CELLS; i++) {
                bias[i] = i >= count ? -INFINITY : halves ? GGML_CPU_FP16_TO_FP32(halves[from[i]]) : 0.0f;
            }
        }
        const float factor = slope(head_of(row));
        for (int64_t i = 0; i < CELLS; i++) {
            to[i] = bias[i] == -INFINITY ? -INFINITY : to[i] + factor * bias[i];
        }
    }

    // By what a head multiplies the mask (ALiBi; Press et al., 2021).
    float slope(int64_t head) const {
        if (most_bias <= 0.0f) {
            return 1.0f;
        }
        const int64_t power = (int64_t) 1 << (int) floor(log2((double) q->ne[2]));
        return head < power ? powf(powf(2.0f, -most_bias / power), head + 1)
                            : powf(powf(2.0f, -most_bias / 2.0f / power), 2 * (head - power) + 1);
    }

    // A row's scores of a segment become weights, relative to the largest of them.
    void weigh(int64_t row, int64_t packs) {
        float   top = -INFINITY;
        int64_t sum = 0;
        for (int64_t pack = 0; pack < packs; pack++) {
            float most;
            ggml_vec_max_f32(CELLS, &most, &scores[(pack * rows + row) * CELLS]);
            top = std::max(top, most);
        }
        for (int64_t pack = 0; pack < packs; pack++) {
            float * ours = &scores[(pack * rows + row) * CELLS];
            if (top == -INFINITY) {
                std::fill_n(ours, CELLS, 0.0f);
            } else {
                ggml_vec_soft_max_f32(CELLS, ours, ours, top);
                sum += fixed_sum(ours, CELLS);
            }
        }
        *part(row).top = top;
        *part(row).sum = (float) sum / 16777216.0f;
    }

    // Add the values of a pack's cells by their weights.
    void mix(const Pack & pack, const float * weights) {
        const int64_t DV    = v->ne[0];
        const char *  start = rows_of(v);
        for (int64_t i = 0; i < pack.count; i++) {
            read_row(v->type, start + listed.cells[pack.first + i] * v->nb[1], &values[i * DV], DV);
        }
        std::fill_n(&values[pack.count * DV], (CELLS - pack.count) * DV, 0.0f);
        simd_gemm(part(0).mixed, weights, values.data(), rows, CELLS, DV);
    }

    ggml_tensor *         dst;
    const ggml_tensor *   q;
    const ggml_tensor *   k;
    const ggml_tensor *   v;
    const ggml_tensor *   mask;
    const ggml_tensor *   sinks;
    float                 scale     = 1.0f;
    float                 most_bias = 0.0f;
    float                 softcap   = 0.0f;
    int64_t               heads     = 1;
    bool                  possible  = false;
    bool                  divided   = false;
    std::vector<RowBlock> blocks;

    // Of the unit that is computed.
    const RowBlock * block  = nullptr;
    int64_t          shared = 0;  // head of keys
    int64_t          rows   = 0;  // of products: for each row of the block, one for each of its heads
    CellList         listed;

    // Two of each for each row: what the cells up to here give it, and what the latest segment does.
    std::vector<float> tops;
    std::vector<float> sums;
    std::vector<float> mixed;

    std::vector<float> queries;
    std::vector<float> scores;       // for each pack of a segment (rows, CELLS)
    float              bias[CELLS];  // the mask of the cells
    std::vector<float> keys;         // (width, CELLS)
    std::vector<float> values;       // (CELLS, width)
};

}  // namespace jan_serve

// Bytes of the buffer in which a lone row's segments are divided between threads; a row sees at most all cells.
size_t jan_serve_attention_size(const ggml_tensor * dst) {
    const bool is_lone = dst->src[0]->ne[1] == 1 && dst->src[0]->ne[3] == 1;
    return is_lone ? jan_serve::GroupedAttention::parts_size(dst, dst->src[1]->ne[1] / jan_serve::CellList::SEGMENT + 2) : 0;
}
