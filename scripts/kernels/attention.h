// Parts of llama.cpp's attention on CPUs. scripts/llama.cmake puts them into ggml-cpu/ops.cpp, behind its own vector
// functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace jan_serve {

// Half-precision values of a mask: minus infinity hides a cell, 0 leaves its score as it is.
constexpr uint16_t HIDDEN = 0xFC00;

// What a tile of a mask does to scores: hide all of them, leave all as they are, or neither.
enum class Seen : uint8_t { UNKNOWN, NONE, ALL, SOME };

// A tile of a mask: which of its rows see a cell. All of them lie in [first, last).
struct Tile {
    Seen    seen  = Seen::UNKNOWN;
    int16_t first = 0;
    int16_t last  = 0;
    int16_t count = 0;
};

// Whether `count` neighbouring cells of a row are all hidden.
inline bool all_hidden(const uint16_t * cells, int64_t count) {
    uint16_t differs = 0;
    for (int64_t i = 0; i < count; i++) {
        differs |= cells[i] ^ HIDDEN;
    }
    return differs == 0;
}

// The tiles of an operation's mask, each read once for all heads: there are a dozen and more heads, and one mask. One
// cache holds the cells of all sequences, so most of its tiles are hidden, some are seen by the only row of a sequence, and
// most of the others are seen as a whole.
class MaskTiles {
  public:
    // `rows` and `cells` are the size of a tile. The mask may be missing.
    MaskTiles(const ggml_tensor * mask, int64_t rows, int64_t cells) : mask(mask), rows(rows), cells(cells) {
        if (mask) {
            columns = (mask->ne[0] + cells - 1) / cells;
            lines   = (mask->ne[1] + rows - 1) / rows;
            tiles.resize(columns * lines * mask->ne[2] * mask->ne[3]);
        }
    }

    // Of `count` rows from `row`, at most a tile's, and the tile of cells from `cell`, of head `i2` and sequence `i3`. Its
    // rows are counted from `row`. SOME may also be ALL where the rows belong to two tiles.
    Tile at(int64_t row, int64_t count, int64_t cell, int64_t i2, int64_t i3) {
        if (!mask) {
            return { Seen::ALL, 0, (int16_t) count, (int16_t) count };
        }
        const int64_t plane = (i3 % mask->ne[3]) * mask->ne[2] + i2 % mask->ne[2];
        Tile          found = { Seen::NONE, (int16_t) count, 0, 0 };
        bool          all   = true;
        for (int64_t line = row / rows; line <= (row + count - 1) / rows; line++) {
            const Tile & tile  = read_once(line, cell / cells, plane);
            const auto   start = line * rows - row;
            const auto   first = std::max<int64_t>(tile.first + start, 0);
            const auto   last  = std::min<int64_t>(tile.last + start, count);
            all = all && tile.seen == Seen::ALL;
            if (first < last) {
                found.first = std::min<int64_t>(found.first, first);
                found.last  = std::max<int64_t>(found.last, last);
                found.seen  = Seen::SOME;
            }
        }
        if (all) {
            found.seen = Seen::ALL;
        }
        found.count = found.last - found.first;
        return found;
    }

    // Whether tiles take less time than single rows, of a mask with one line of tiles. A tile takes as long as three of its
    // rows before its products begin; `alone` is the time of a single row by that of one of a tile's.
    bool pay(float alone) {
        float apart    = 0.0f;
        float together = 0.0f;
        for (int64_t column = 0; column < columns; column++) {
            const Tile & tile = read_once(0, column, 0);
            if (tile.seen != Seen::NONE) {
                together += 3 + tile.last - tile.first;
                apart    += alone * tile.count;
            }
        }
        return lines == 1 && together < apart;
    }

  private:
    const Tile & read_once(int64_t line, int64_t column, int64_t plane) {
        Tile & found = tiles[(plane * lines + line) * columns + column];
        if (found.seen == Seen::UNKNOWN) {
            found = read(line, column, plane);
        }
        return found;
    }

    Tile read(int64_t line, int64_t column, int64_t plane) const {
        const int64_t height = std::min(rows, mask->ne[1] - line * rows);
        const int64_t width  = std::min(cells, mask->ne[0] - column * cells);
        uint16_t      set    = 0;
        Tile          found  = { Seen::NONE, 0, 0, 0 };
        for (int64_t row = 0; row < height; row++) {
            const char * start = (const char *) mask->data + (line * rows + row) * mask->nb[1] +
                                 (plane % mask->ne[2]) * mask->nb[2] + (plane / mask->ne[2]) * mask->nb[3];
            const uint16_t * values = (const uint16_t *) start + column * cells;
            uint16_t         seen   = 0;
            for (int64_t i = 0; i < width; i++) {
                seen |= values[i] ^ HIDDEN;
                set  |= values[i];
            }
            if (seen) {
                found.first = found.count ? found.first : row;
                found.last  = row + 1;
                found.count++;
            }
        }
        if (found.count) {
            found.seen = set == 0 ? Seen::ALL : Seen::SOME;
        }
        return found;
    }

    const ggml_tensor * mask;
    int64_t             rows;
    int64_t             cells;
    int64_t             columns = 0;
    int64_t             lines   = 0;
    std::vector<Tile>   tiles;
};

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

// Write `count` keys, `stride` bytes apart, as columns of a matrix of floats whose rows are `pitch` long. `rows` has room for
// eight keys.
inline void as_columns(float * to, int64_t pitch, ggml_type type, const char * keys, size_t stride, int64_t count,
                       int64_t width, float * rows) {
    for (int64_t key = 0; key < count; key += 8) {
        const int64_t read = std::min<int64_t>(8, count - key);
        for (int64_t k = 0; k < read; k++) {
            read_row(type, keys + (key + k) * stride, rows + k * width, width);
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

// Attention of single tokens: the heads that share keys are the rows of a product, so that keys and values are read once
// for all of them (grouped queries; Ainslie et al., 2023). What a token gets does not depend on others in its batch.
class GroupedAttention {
  public:
    static constexpr int64_t CELLS = GGML_FA_TILE_KV;

    explicit GroupedAttention(ggml_tensor * dst)
        : dst(dst), q(dst->src[0]), k(dst->src[1]), v(dst->src[2]), mask(dst->src[3]), sinks(dst->src[4]) {
        float bias = 0.0f;
        memcpy(&scale, (float *) dst->op_params + 0, sizeof(float));
        memcpy(&bias, (float *) dst->op_params + 1, sizeof(float));
        memcpy(&softcap, (float *) dst->op_params + 2, sizeof(float));
        if (softcap != 0.0f) {
            scale /= softcap;
        }
        heads = q->ne[2] / k->ne[2];
        // With ALiBi each head has a mask of its own.
        possible = HAS_PRODUCTS && heads > 1 && bias == 0.0f && k->ne[2] == v->ne[2] && k->ne[3] == v->ne[3] &&
                   (!mask || mask->ne[2] == 1) && q->type == GGML_TYPE_F32 && is_readable(k->type) &&
                   is_readable(v->type);
    }

    bool is_possible() const { return possible; }

    // The time of a token and a head of queries by that of a row of a tile (MaskTiles::pay).
    float time() const { return possible ? 1.0f + 3.0f / heads : 5.0f; }

    // Pairs of a token and a head of keys.
    int64_t units() const { return k->ne[2] * q->ne[1] * q->ne[3]; }

    // Compute the units [first, last) into `dst`.
    void compute(int64_t first, int64_t last) {
        const int64_t DV = v->ne[0];
        allocate();
        for (int64_t unit = first; unit < last; unit++) {
            attend(unit, 0, 1);
            for (int64_t head = 0; head < heads; head++) {
                ggml_vec_scale_f32(DV, mixed + head * DV, sum[head] == 0.0f ? 0.0f : 1.0f / sum[head]);
                memcpy(output(unit, head), mixed + head * DV, DV * sizeof(float));
            }
        }
    }

    // Of the only token, compute what the cells of one of `parts` contribute: for each head of queries, `stride` floats
    // apart, the largest score, the sum of weights, and the values by weight.
    void compute_part(int64_t part, int64_t parts, float * partials, int64_t stride) {
        const int64_t DV = v->ne[0];
        allocate();
        for (int64_t unit = 0; unit < units(); unit++) {
            attend(unit, part, parts);
            for (int64_t head = 0; head < heads; head++) {
                float * partial = partials + (unit * heads + head) * stride;
                partial[0]      = top[head];
                partial[1]      = sum[head];
                memcpy(partial + 2, mixed + head * DV, DV * sizeof(float));
            }
        }
    }

  private:
    // Room for a unit at a time.
    void allocate() {
        const int64_t DK = k->ne[0];
        const int64_t DV = v->ne[0];
        if (room) {
            return;
        }
        room.reset(new float[heads * (2 + DV + DK + CELLS) + CELLS * (1 + DK + std::max(DK, DV))]);
        top     = room.get();
        sum     = top + heads;
        mixed   = sum + heads;
        queries = mixed + heads * DV;
        scores  = queries + heads * DK;
        bias    = scores + heads * CELLS;
        keys    = bias + CELLS;
        values  = keys + CELLS * DK;
    }

    int64_t shared(int64_t unit) const { return unit % k->ne[2]; }
    int64_t row(int64_t unit) const { return unit / k->ne[2] % q->ne[1]; }
    int64_t sequence(int64_t unit) const { return unit / k->ne[2] / q->ne[1]; }

    float * output(int64_t unit, int64_t head) const {
        const int64_t place = (sequence(unit) * q->ne[1] + row(unit)) * q->ne[2] + shared(unit) * heads + head;
        return (float *) ((char *) dst->data + place * dst->nb[1]);
    }

    const uint16_t * seen_by(int64_t unit) const {
        return mask ? (const uint16_t *) ((const char *) mask->data + row(unit) * mask->nb[1] +
                                          sequence(unit) % mask->ne[3] * mask->nb[3])
                    : nullptr;
    }

    void attend(int64_t unit, int64_t part, int64_t parts) {
        const uint16_t * seen = seen_by(unit);
        std::fill_n(top, heads, -INFINITY);
        std::fill_n(sum, heads * (1 + v->ne[0]), 0.0f);
        for (int64_t head = 0; head < heads; head++) {
            const char * from = (const char *) q->data + row(unit) * q->nb[1] +
                                (shared(unit) * heads + head) * q->nb[2] + sequence(unit) * q->nb[3];
            memcpy(queries + head * k->ne[0], from, k->ne[0] * sizeof(float));
        }
        const int64_t all   = parts > 1 ? count_seen(seen) : 0;
        const int64_t first = all * part / parts;
        const int64_t last  = parts > 1 ? all * (part + 1) / parts : INT64_MAX;
        int64_t       index = 0;
        for (int64_t cell = 0; cell < k->ne[1] && index < last; cell += CELLS) {
            const int64_t cells = std::min(CELLS, k->ne[1] - cell);
            if (!(seen && all_hidden(seen + cell, cells)) && index++ >= first) {
                add_cells(unit, cell, cells, seen);
            }
        }
        if (sinks && part == 0) {
            add_sinks(unit);
        }
    }

    int64_t count_seen(const uint16_t * seen) const {
        int64_t count = 0;
        for (int64_t cell = 0; cell < k->ne[1]; cell += CELLS) {
            count += !(seen && all_hidden(seen + cell, std::min(CELLS, k->ne[1] - cell)));
        }
        return count;
    }

    void add_cells(int64_t unit, int64_t cell, int64_t cells, const uint16_t * seen) {
        const int64_t DK = k->ne[0];
        const int64_t DV = v->ne[0];
        const int64_t i3   = sequence(unit) / (q->ne[3] / k->ne[3]);
        const char *  from = (const char *) k->data + cell * k->nb[1] + shared(unit) * k->nb[2] + i3 * k->nb[3];
        as_columns(keys, CELLS, k->type, from, k->nb[1], cells, DK, values);
        std::fill_n(scores, heads * CELLS, 0.0f);
        simd_gemm(scores, queries, keys, heads, DK, CELLS);
        ggml_vec_scale_f32(heads * CELLS, scores, scale);
        if (softcap != 0.0f) {
            ggml_vec_tanh_f32(heads * CELLS, scores, scores);
            ggml_vec_scale_f32(heads * CELLS, scores, softcap);
        }
        for (int64_t i = 0; i < CELLS; i++) {
            bias[i] = i >= cells ? -INFINITY : seen ? GGML_CPU_FP16_TO_FP32(seen[cell + i]) : 0.0f;
        }
        for (int64_t head = 0; head < heads; head++) {
            weigh(head);
        }
        from = (const char *) v->data + cell * v->nb[1] + shared(unit) * v->nb[2] + i3 * v->nb[3];
        for (int64_t i = 0; i < CELLS; i++) {
            if (bias[i] == -INFINITY) {
                std::fill_n(values + i * DV, DV, 0.0f);
            } else {
                read_row(v->type, from + i * v->nb[1], values + i * DV, DV);
            }
        }
        simd_gemm(mixed, scores, values, heads, CELLS, DV);
    }

    // Scores become weights, relative to the largest score up to here (online softmax; Milakov and Gimelshein, 2018).
    void weigh(int64_t head) {
        float * ours = scores + head * CELLS;
        float   most;
        // Hidden cells may hold anything, infinities too.
        for (int64_t i = 0; i < CELLS; i++) {
            ours[i] = bias[i] == -INFINITY ? -INFINITY : ours[i] + bias[i];
        }
        ggml_vec_max_f32(CELLS, &most, ours);
        if (most > top[head]) {
            const float kept = expf(top[head] - most);
            ggml_vec_scale_f32(v->ne[0], mixed + head * v->ne[0], kept);
            sum[head] *= kept;
            top[head] = most;
        }
        sum[head] += ggml_vec_soft_max_f32(CELLS, ours, ours, top[head]);
    }

    void add_sinks(int64_t unit) {
        for (int64_t head = 0; head < heads; head++) {
            const float sink = ((const float *) sinks->data)[shared(unit) * heads + head];
            const float most = std::max(top[head], sink);
            const float kept = expf(top[head] - most);
            ggml_vec_scale_f32(v->ne[0], mixed + head * v->ne[0], kept);
            sum[head] = sum[head] * kept + expf(sink - most);
            top[head] = most;
        }
    }

    ggml_tensor *       dst;
    const ggml_tensor * q;
    const ggml_tensor * k;
    const ggml_tensor * v;
    const ggml_tensor * mask;
    const ggml_tensor * sinks;
    float               scale    = 1.0f;
    float               softcap  = 0.0f;
    int64_t             heads    = 1;
    bool                possible = false;

    std::unique_ptr<float[]> room;
    float *                  top     = nullptr;  // for each head of queries: the largest score up to here,
    float *                  sum     = nullptr;  // the sum of weights,
    float *                  mixed   = nullptr;  // and the values by weight
    float *                  queries = nullptr;
    float *                  scores  = nullptr;  // (heads, CELLS)
    float *                  bias    = nullptr;  // the mask of the cells
    float *                  keys    = nullptr;  // (width, CELLS)
    float *                  values  = nullptr;  // (CELLS, width)
};

}  // namespace jan_serve
