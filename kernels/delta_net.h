// Gated delta nets (GATED_DELTA_NET). patches.cmake puts them into ggml-cpu/ops.cpp.
//
// A head's state is a matrix, of which llama.cpp stores the columns one after the other. Each token multiplies the state by its
// gate, adds a product of its key, and reads the sum with its query. llama.cpp passes over the whole state four times for each
// token. But no column needs another one, so that a few columns, which fit into the first cache, are taken through all tokens
// of a prompt, in one pass for each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention.h"

#if defined(GGML_SIMD) && !defined(__ARM_FEATURE_SVE) && !defined(__riscv_v_intrinsic)
#    define JAN_SERVE_DELTA_NET 1  // vectors of a fixed length
namespace jan_serve {

constexpr int64_t LANES   = GGML_F32_EPR;
constexpr int64_t COLUMNS = 2 * LANES;  // that are computed together
constexpr int64_t WIDTH   = 256;        // of a state, at most
constexpr int64_t EIGHT   = 8;
constexpr int64_t ROWS    = 16;         // of a state, whose products are added by themselves, so that sums wait for each other less

static_assert(COLUMNS % EIGHT == 0, "columns are transposed eight by eight");

// A thread's share of an operation's units: the first one, and the one after the last.
struct ThreadUnits {
    int64_t begin, end;

    ThreadUnits(int64_t units, const ggml_compute_params * params) :
        begin(units * params->ith / params->nth), end(units * (params->ith + 1) / params->nth) {}
};

inline GGML_F32_VEC times(GGML_F32_VEC numbers, float factor) {
    return GGML_F32_VEC_MUL(numbers, GGML_F32_VEC_SET1(factor));
}

inline GGML_F32_VEC minus(GGML_F32_VEC from, GGML_F32_VEC numbers) {
    return GGML_F32_VEC_FMA(from, numbers, GGML_F32_VEC_SET1(-1.0f));
}

// COLUMNS numbers.
struct ColumnSums {
    GGML_F32_VEC a, b;

    ColumnSums operator+(const ColumnSums & other) const {
        return { GGML_F32_VEC_ADD(a, other.a), GGML_F32_VEC_ADD(b, other.b) };
    }
};

// What a column is multiplied with, for the key and the query.
struct KeyAndQuerySums {
    ColumnSums key, query;

    KeyAndQuerySums operator+(const KeyAndQuerySums & other) const { return { key + other.key, query + other.query }; }
};

class DeltaNet {
  public:
    DeltaNet(const ggml_compute_params * params, ggml_tensor * dst) :
        params(params), dst(dst), width(dst->src[2]->ne[0]), heads(dst->src[2]->ne[1]), tokens(dst->src[2]->ne[2]),
        sequences(dst->src[2]->ne[3]), scale(1.0f / sqrtf((float) width)) {}

    bool is_possible() const { return !params->use_ref && width <= WIDTH && width % COLUMNS == 0 && width % ROWS == 0; }

    // To be called by each thread.
    void run() const {
        const int64_t     parts = width / COLUMNS;
        const ThreadUnits units(sequences * heads * parts, params);
        for (int64_t unit = units.begin; unit < units.end; unit++) {
            const Head head(*this, unit / parts / heads, unit / parts % heads);
            compute(head, unit % parts * COLUMNS);
        }
    }

  private:
    // The operation's tensors at one head of one sequence.
    struct Head {
        Head(const DeltaNet & net, int64_t sequence, int64_t head) : net(net), sequence(sequence), head(head) {}

        const float * query(int64_t token) const { return shared_row(0, token); }

        const float * key(int64_t token) const { return shared_row(1, token); }

        const float * value(int64_t token) const { return row(2, head, token, sequence); }

        float beta(int64_t token) const { return *row(4, head, token, sequence); }

        // The gate of each row of the state.
        void gates(int64_t token, float * to) const {
            const float * logarithms = row(3, head, token, sequence);
            if (net.dst->src[3]->ne[0] == 1) {
                std::fill(to, to + net.width, expf(*logarithms));
                return;
            }
            for (int64_t i = 0; i < net.width; i++) {
                to[i] = expf(logarithms[i]);
            }
        }

        const float * old_state(int64_t column) const { return row(5, column, head, sequence); }

        float * output(int64_t token) const {
            return (float *) net.dst->data + ((sequence * net.tokens + token) * net.heads + head) * net.width;
        }

        // Where the state after this token goes; null: nowhere. The last ones are kept behind the outputs, the newest first.
        float * new_state(int64_t token, int64_t column) const {
            const int64_t age = net.tokens - 1 - token;
            if (age >= ggml_get_op_params_i32(net.dst, 0)) {
                return nullptr;
            }
            float * states = (float *) net.dst->data + ggml_nelements(net.dst->src[2]);
            return states + (((age * net.sequences + sequence) * net.heads + head) * net.width + column) * net.width;
        }

      private:
        const DeltaNet & net;
        int64_t          sequence, head;

        const float * row(int source, int64_t i1, int64_t i2, int64_t i3) const {
            const ggml_tensor * t = net.dst->src[source];
            return (const float *) ((const char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3]);
        }

        // Heads may share queries and keys, and so may sequences.
        const float * shared_row(int source, int64_t token) const {
            const ggml_tensor * t = net.dst->src[source];
            return row(source, head % t->ne[1], token, sequence / (net.sequences / t->ne[3]));
        }
    };

    // Numbers of one token.
    struct Token {
        float gates[WIDTH];
        float gated_key[WIDTH];  // with which the state before the gate is multiplied

        void read(const Head & head, int64_t token, int64_t width) {
            head.gates(token, gates);
            const float * key = head.key(token);
            for (int64_t i = 0; i < width; i += LANES) {
                const GGML_F32_VEC product = GGML_F32_VEC_MUL(GGML_F32_VEC_LOAD(key + i), GGML_F32_VEC_LOAD(gates + i));
                GGML_F32_VEC_STORE(gated_key + i, product);
            }
        }
    };

    // `sums_of(first)`: those of ROWS rows.
    template <class SumsOf> auto sum_of_rows(SumsOf && sums_of) const {
        auto sum = sums_of(0);
        for (int64_t first = ROWS; first < width; first += ROWS) {
            sum = sum + sums_of(first);
        }
        return sum;
    }

    // COLUMNS columns of a head's state, side by side, through all tokens.
    void compute(const Head & head, int64_t column) const {
        float block[WIDTH * COLUMNS];
        for (int64_t i = 0; i < COLUMNS; i += EIGHT) {
            as_eight_columns(block + i, COLUMNS, head.old_state(column + i), width, width);
        }
        Token   both[2];
        Token * token = &both[0];
        Token * next  = &both[1];
        token->read(head, 0, width);
        ColumnSums sums = sum_of_rows([&](int64_t first) { return multiplied(block, first, token->gated_key); });
        for (int64_t t = 0; t < tokens; t++) {
            next->read(head, std::min(t + 1, tokens - 1), width);
            const float        beta  = head.beta(t);
            const float *      value = head.value(t) + column;
            const ColumnSums   changes{ times(minus(GGML_F32_VEC_LOAD(value), sums.a), beta),
                                        times(minus(GGML_F32_VEC_LOAD(value + LANES), sums.b), beta) };
            const float *      key   = head.key(t);
            const float *      query = head.query(t);
            const auto         found = sum_of_rows([&](int64_t first) {
                return changed(block, first, token->gates, key, changes, query, next->gated_key);
            });
            float * output = head.output(t) + column;
            GGML_F32_VEC_STORE(output, times(found.query.a, scale));
            GGML_F32_VEC_STORE(output + LANES, times(found.query.b, scale));
            sums = found.key;
            if (float * state = head.new_state(t, column)) {
                for (int64_t i = 0; i < width; i += EIGHT) {
                    as_eight_columns(state + i, width, block + i * COLUMNS, COLUMNS, COLUMNS);
                }
            }
            std::swap(token, next);
        }
    }

    // ROWS rows of the block, times those numbers.
    static ColumnSums multiplied(const float * block, int64_t first, const float * numbers) {
        ColumnSums sums{ GGML_F32_VEC_ZERO, GGML_F32_VEC_ZERO };
        for (int64_t i = first; i < first + ROWS; i++) {
            const GGML_F32_VEC number = GGML_F32_VEC_SET1(numbers[i]);
            sums.a = GGML_F32_VEC_FMA(sums.a, GGML_F32_VEC_LOAD(block + i * COLUMNS), number);
            sums.b = GGML_F32_VEC_FMA(sums.b, GGML_F32_VEC_LOAD(block + i * COLUMNS + LANES), number);
        }
        return sums;
    }

    // The same after a token's change of these rows: with its query, and with the next one's key.
    static KeyAndQuerySums changed(float * block, int64_t first, const float * gates, const float * key,
                                   const ColumnSums & changes, const float * query, const float * next_key) {
        KeyAndQuerySums sums{ { GGML_F32_VEC_ZERO, GGML_F32_VEC_ZERO }, { GGML_F32_VEC_ZERO, GGML_F32_VEC_ZERO } };
        for (int64_t i = first; i < first + ROWS; i++) {
            float *            row = block + i * COLUMNS;
            const GGML_F32_VEC g = GGML_F32_VEC_SET1(gates[i]), k = GGML_F32_VEC_SET1(key[i]);
            const GGML_F32_VEC q = GGML_F32_VEC_SET1(query[i]), n = GGML_F32_VEC_SET1(next_key[i]);
            const GGML_F32_VEC a = GGML_F32_VEC_FMA(GGML_F32_VEC_MUL(g, GGML_F32_VEC_LOAD(row)), k, changes.a);
            const GGML_F32_VEC b = GGML_F32_VEC_FMA(GGML_F32_VEC_MUL(g, GGML_F32_VEC_LOAD(row + LANES)), k, changes.b);
            GGML_F32_VEC_STORE(row, a);
            GGML_F32_VEC_STORE(row + LANES, b);
            sums.query.a = GGML_F32_VEC_FMA(sums.query.a, a, q);
            sums.query.b = GGML_F32_VEC_FMA(sums.query.b, b, q);
            sums.key.a   = GGML_F32_VEC_FMA(sums.key.a, a, n);
            sums.key.b   = GGML_F32_VEC_FMA(sums.key.b, b, n);
        }
        return sums;
    }

    const ggml_compute_params * params;
    ggml_tensor *               dst;
    int64_t                     width, heads, tokens, sequences;
    float                       scale;
};

}  // namespace jan_serve
#endif
