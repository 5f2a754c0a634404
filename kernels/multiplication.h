// One operation of quantised weights and activations: a matrix (MUL_MAT), or of many the ones that each token chose (MUL_MAT_ID).
//
// llama.cpp multiplies a block of weights and one of activations at a time, and unpacks the weights again for every few tokens.
// Here, eight rows of weights (with AVX-512, 16) are unpacked once for all tokens of a batch, so that a vector holds four
// values of each row, and no sum crosses a vector. A value does not depend on the other tokens of its batch: sums of a
// block are integers, and the blocks of a row are added in their order, for a single token as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "read_ahead.h"
#include "vectors.h"

#ifdef JAN_SERVE_PRODUCTS
namespace jan_serve {

constexpr int64_t TILE       = PARTS == 1 ? 4 : 6;  // tokens that share the vectors of a panel: as many as fit into registers
constexpr int64_t CHUNK_ROWS = 64;                  // rows that a thread takes at once, at most

// The same of one token: what its thread has prefetched beyond the end of a chunk is another thread's.
constexpr int64_t ONE_TOKEN_CHUNK_ROWS = 512;

// dst = weights × activations. The buffer holds what threads read (quantised inputs, and which products they are for), once or once a
// thread, then each thread's panels.
template <class Product> class Multiplication {
  public:
    using Weights     = typename Product::Weights;
    using Activations = typename Product::Activations;
    using Panel       = typename Product::Panel;

    // params: null if only the size is asked for.
    Multiplication(const ggml_tensor * dst, const ggml_compute_params * params) : dst(dst), params(params) {
        const ggml_tensor * weights = dst->src[0];
        blocks                      = weights->ne[0] / ggml_blck_size(weights->type);
        rows                        = weights->ne[1];
        matrices                    = weights->ne[2];
        inputs                      = ggml_nrows(dst->src[1]);
        outputs                     = ggml_nrows(dst);
        is_one_token                = (dst->op == GGML_OP_MUL_MAT_ID ? dst->src[2]->ne[1] : outputs) == 1;
        inputs_size                 = place_inputs(nullptr);
        if (params) {
            char * buffer = (char *) aligned((size_t) params->wdata);
            place_inputs(buffer + (is_one_token ? params->ith * inputs_size : 0));
            panels = (Panel *) (buffer + copies(params->nth) * inputs_size) + params->ith * blocks;
        }
    }

    // Bytes of the buffer.
    size_t size(int threads) const { return ALIGNMENT + copies(threads) * inputs_size + threads * blocks * sizeof(Panel); }

    // To be called by each thread. Of one token, each of them makes what it reads: that takes less time than to wait for the others.
    void run() {
        quantise(is_one_token ? 0 : params->ith, is_one_token ? 1 : params->nth);
        if (is_one_token || params->ith == 0) {
            dst->op == GGML_OP_MUL_MAT_ID ? group_by_expert() : group_all();
        }
        jan_serve_begin_chunks(params, !is_one_token);
        compute();
    }

  private:
    static constexpr size_t ALIGNMENT = 64;  // a vector of a panel that lies in two lines of the cache is read twice

    static size_t aligned(size_t place) { return (place + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

    // A row of quantised activations, and where its products go.
    struct Token {
        const Activations * input;
        float *             out;
    };

    // The tokens of a matrix. The last group has none.
    struct Group {
        const char * weights;
        int64_t      first;  // of the tokens
        int64_t      count;
    };

    int copies(int threads) const { return is_one_token ? threads : 1; }

    // Bytes of what threads read. base: null if only the size is asked for.
    size_t place_inputs(char * base) {
        size_t     end   = 0;
        const auto place = [&](auto *& member, int64_t count) {
            member = base ? (std::remove_reference_t<decltype(member)>) (base + end) : nullptr;
            end    = aligned(end + count * sizeof(*member));
        };
        place(groups, matrices + 1);
        place(tokens, outputs);
        place(activations, blocks * inputs);
        return end;
    }

    // A part of the blocks, of so many parts of the same size.
    void quantise(int part, int parts) {
        const ggml_tensor * source = dst->src[1];
        const int64_t       last   = (part + 1) * blocks * inputs / parts;
        for (int64_t block = part * blocks * inputs / parts; block < last;) {
            const int64_t input = block / blocks;
            const int64_t first = block % blocks;
            int64_t       count = std::min(blocks - first, last - block);
            const int64_t outer = input / source->ne[1];
            const char *  row   = (const char *) source->data + input % source->ne[1] * source->nb[1] +
                                  outer % source->ne[2] * source->nb[2] + outer / source->ne[2] * source->nb[3];
            const int64_t size   = ggml_blck_size(dst->src[0]->type);
            for (const float * values = (const float *) row + first * size; count > 0; count--, values += size) {
                Product::quantise(values, activations[block++]);
            }
        }
    }

    void group_all() {
        for (int64_t token = 0; token < outputs; token++) {
            tokens[token] = { activations + token * blocks, (float *) dst->data + token * rows };
        }
        groups[0] = { (const char *) dst->src[0]->data, 0, outputs };
        groups[1] = {};
    }

    // Tokens in the order of their experts; experts that have some.
    void group_by_expert() {
        const ggml_tensor * ids = dst->src[2];
        const auto each = [&](auto && use) {
            for (int64_t token = 0; token < ids->ne[1]; token++) {
                for (int64_t choice = 0; choice < ids->ne[0]; choice++) {
                    const char *  id     = (const char *) ids->data + token * ids->nb[1] + choice * ids->nb[0];
                    const int32_t expert = *(const int32_t *) id;
                    GGML_ASSERT(expert >= 0 && expert < matrices);
                    use(groups[expert], token, choice);
                }
            }
        };
        std::fill_n(groups, matrices + 1, Group{});
        each([](Group & group, int64_t, int64_t) { group.count++; });
        int64_t first = 0;
        for (int64_t expert = 0; expert < matrices; expert++) {
            Group & group = groups[expert];
            group.weights = (const char *) dst->src[0]->data + expert * dst->src[0]->nb[2];
            group.first   = first;
            first += group.count;
            group.count = 0;
        }
        const int64_t per_token = dst->src[1]->ne[1];
        each([&](Group & group, int64_t token, int64_t choice) {
            float * out = (float *) ((char *) dst->data + token * dst->nb[2] + choice * dst->nb[1]);
            const int64_t input = token * per_token + choice % per_token;
            tokens[group.first + group.count++] = { activations + input * blocks, out };
        });
        *std::remove_if(groups, groups + matrices, [](const Group & group) { return group.count == 0; }) = {};
        if (params->ith != 0) {
            return;
        }
        ReadAhead::look();
        for (int64_t group = 0; group < EXPERTS_AHEAD && groups[group].count > 0; group++) {
            ReadAhead::ask_for(groups[group].weights, dst->src[0]->nb[2]);
        }
    }

    // The next chunk of rows goes to the thread that is free, whichever matrix it is of.
    void compute() {
        const int64_t count = std::find_if(groups, groups + matrices, [](auto & group) { return !group.count; }) - groups;
        const int64_t share      = count * rows / (4 * params->nth);
        const int64_t most       = std::clamp(share, PANEL_ROWS, is_one_token ? ONE_TOKEN_CHUNK_ROWS : CHUNK_ROWS);
        const int64_t parts      = (rows + most - 1) / most;
        const int64_t chunk_rows = (rows + parts * PANEL_ROWS - 1) / (parts * PANEL_ROWS) * PANEL_ROWS;
        const int64_t chunks     = (rows + chunk_rows - 1) / chunk_rows;
        const auto    start_of   = [&](int64_t chunk) {
            chunk = std::min(chunk, count * chunks - 1);
            return groups[chunk / chunks].weights + chunk % chunks * chunk_rows * dst->src[0]->nb[1];
        };
        for (int64_t chunk = params->ith; chunk < count * chunks; chunk = jan_serve_next_chunk(params->threadpool)) {
            const Group & group = groups[chunk / chunks];
            const int64_t first = chunk % chunks * chunk_rows;
            if (first == 0 && chunk / chunks + EXPERTS_AHEAD < count) {
                ReadAhead::ask_for(groups[chunk / chunks + EXPERTS_AHEAD].weights, dst->src[0]->nb[2]);
            }
            const int64_t last  = std::min(rows, first + chunk_rows);
            for (int64_t row = first; row < last; row += PANEL_ROWS) {
                // Threads take chunks in turn as a rule.
                const bool   is_last = row + PANEL_ROWS >= last;
                const char * next    = is_last ? start_of(chunk + params->nth)
                                               : group.weights + (row + PANEL_ROWS) * dst->src[0]->nb[1];
                compute_rows(group, row, next);
            }
        }
    }

    // A panel's rows from `first`, or those that are left. Prefetches those that begin at `next`.
    void compute_rows(const Group & group, int64_t first, const char * next) {
        const int64_t   count = std::min(PANEL_ROWS, rows - first);
        const Weights * weights[PANEL_ROWS];
        for (int64_t row = 0; row < PANEL_ROWS; row++) {
            weights[row] = (const Weights *) (group.weights + (first + std::min(row, count - 1)) * dst->src[0]->nb[1]);
        }
        const Token * of_group = tokens + group.first;
        if (group.count == 1) {
            return compute_few<1>(weights, of_group, first, count, next);
        }
        if (group.count == 2) {
            return compute_few<2>(weights, of_group, first, count, next);
        }
        if (group.count <= Product::SOME_TOKENS) {
            return compute_some(weights, of_group, group.count, first, count, next);
        }
        for (int64_t block = 0; block < blocks; block++) {
            Product::template pack<0>(weights, block, panels + block, next);
        }
        compute_many(of_group, group.count, first, count, next);
    }

    // Rows of activations that are multiplied together.
    template <int N> struct Inputs {
        const Activations * rows[N];
    };

    template <int N> JAN_SERVE_INLINE Inputs<N> inputs_of(const Token * of_group) const {
        Inputs<N> found;
        for (int j = 0; j < N; j++) {
            found.rows[j] = of_group[j].input;
        }
        return found;
    }

    // Weights as they lie: so few tokens do not repay the unpacking.
    template <int N>
    void compute_few(const Weights * const * weights, const Token * of_group, int64_t first, int64_t count, const char * next) {
        const Inputs<N> few = inputs_of<N>(of_group);
        for (int64_t row = 0; row < count; row += PART_ROWS) {
            __m256 products[N];
            Product::template multiply_few<N>(weights + row, blocks, few.rows, next, products);
            for (int token = 0; token < N; token++) {
                store(of_group[token].out + first + row, products[token], count - row);
            }
            next += PART_ROWS * dst->src[0]->nb[1];
        }
    }

    // A block after the other. The next rows are prefetched while a block is unpacked.
    void compute_some(const Weights * const * weights, const Token * of_group, int64_t number, int64_t first, int64_t count,
                      const char * next) {
        constexpr size_t SIZE = sizeof(Weights);
        Floats           totals[Product::SOME_TOKENS] = {};
        for (int64_t block = 0; block < blocks; block++) {
            Product::template pack<SIZE>(weights, block, panels, next + block * PANEL_ROWS * SIZE);
            for (int64_t token = 0; token < number; token += TILE) {
                with_number(number - token, [&](auto tile) {
                    const auto together = inputs_of<decltype(tile)::value>(of_group + token);
                    Product::template add<decltype(tile)::value>(*panels, together.rows, block, totals + token);
                });
            }
        }
        store_all(of_group, totals, number, first, count);
    }

    // A tile of tokens after the other. The last two prefetch the next rows, since the tokens of a long batch fill the cache.
    void compute_many(const Token * of_group, int64_t number, int64_t first, int64_t count, const char * next) {
        constexpr size_t SHARE = PANEL_ROWS * sizeof(Weights) / 2;
        int64_t          token = 0;
        for (; token + 2 * TILE < number; token += TILE) {
            compute_tile<TILE, 0>(of_group + token, first, count, next);
        }
        for (; token < number; token += TILE) {
            with_number(number - token, [&](auto tile) {
                compute_tile<decltype(tile)::value, SHARE>(of_group + token, first, count, next);
            });
            next += blocks * SHARE;
        }
    }

    template <int N, size_t SHARE> void compute_tile(const Token * of_tile, int64_t first, int64_t count, const char * next) {
        const Inputs<N> together  = inputs_of<N>(of_tile);
        Floats          totals[N] = {};
        for (int64_t block = 0; block < blocks; block++) {
            prefetch<SHARE>(next + block * SHARE);
            Product::template add<N>(panels[block], together.rows, block, totals);
        }
        store_all(of_tile, totals, N, first, count);
    }

    // Calls `use` with the size of the next tile, if so many tokens are left.
    template <int N = 1, class Use> static void with_number(int64_t left, Use && use) {
        if constexpr (N < TILE) {
            if (left > N) {
                return with_number<N + 1>(left, use);
            }
        }
        use(std::integral_constant<int, N>());
    }

    static void store_all(const Token * of_group, const Floats * totals, int64_t number, int64_t first, int64_t count) {
        for (int64_t token = 0; token < number; token++) {
            store(of_group[token].out + first, totals[token], count);
        }
    }

    template <class Vector> static void store(float * out, Vector products, int64_t count) {
        memcpy(out, &products, std::min(count, (int64_t) (sizeof(products) / sizeof(float))) * sizeof(float));
    }

    const ggml_tensor *         dst;
    const ggml_compute_params * params;
    int64_t                     blocks;
    int64_t                     rows;
    int64_t                     matrices;
    int64_t                     inputs;   // rows of activations
    int64_t                     outputs;  // rows of products
    bool                        is_one_token;
    size_t                      inputs_size;
    Group *                     groups;
    Token *                     tokens;
    Activations *               activations;
    Panel *                     panels;
};

}  // namespace jan_serve
#endif
