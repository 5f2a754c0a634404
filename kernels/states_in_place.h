// A delta net reads and writes its states where the cache has them. llama.cpp copies them three times for each token: from the
// cache into rows (GET_ROWS), into the operation's result, and back into the cache (CPY). With several streams that is more
// memory than weights. patches.cmake puts these functions into ggml-cpu/ops.cpp, and ggml-cpu.c asks them before each operation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "delta_net.h"

#ifdef JAN_SERVE_DELTA_NET
namespace jan_serve {

// A delta net of a graph whose states may stay where they are. Each thread finds the same.
class StatesInPlace {
  public:
    // net: its place among the graph's nodes.
    StatesInPlace(const ggml_compute_params * params, const ggml_cgraph * graph, int net) :
        params(params), graph(graph), net(graph->nodes[net]), place(net) {}

    // Its place among the nodes; -1 if the copy is needed.
    int copy() const {
        for (int i = place + 1; i < graph->n_nodes; i++) {
            if (!ggml_op_is_empty(graph->nodes[i]->op)) {
                return is_possible(graph->nodes[i]) ? i : -1;
            }
        }
        return -1;
    }

    // The rows of states that the net reads; null: other ones.
    const ggml_tensor * rows() const {
        const ggml_tensor * shaped = net->src[5];
        const bool          found  = shaped->op == GGML_OP_RESHAPE && shaped->src[0]->op == GGML_OP_GET_ROWS;
        return found ? shaped->src[0] : nullptr;
    }

  private:
    const ggml_compute_params * params;
    const ggml_cgraph *         graph;
    ggml_tensor *               net;
    int                         place;

    bool is_used(const ggml_tensor * tensor, int times) const {
        const size_t slot = ggml_hash_find(&graph->visited_hash_set, tensor);
        return ggml_bitset_get(graph->visited_hash_set.used, slot) && graph->use_counts[slot] == times &&
               !(tensor->flags & GGML_TENSOR_FLAG_OUTPUT);
    }

    // Nobody else reads the copies, and the states come from the very rows of the cache to which they go back.
    bool is_possible(const ggml_tensor * copy) const {
        const ggml_tensor * states = rows();
        const bool is_alone = states && is_used(states, 1) && is_used(net->src[5], 1) && is_used(net, 2) && is_used(copy, 0);
        return is_alone && DeltaNet(params, net).is_possible() && takes_states(copy) && gives_same_rows(states, copy->src[1]);
    }

    bool takes_states(const ggml_tensor * copy) const {
        const ggml_tensor * state     = net->src[5];
        const ggml_tensor * to        = copy->src[1];
        const int64_t       size      = state->ne[0] * state->ne[1] * state->ne[2];
        const int64_t       sequences = state->ne[3];
        const int64_t       kept      = std::min<int64_t>(ggml_get_op_params_i32(net, 0), net->src[2]->ne[2]);
        const size_t        answers   = ggml_nelements(net->src[2]) * sizeof(float);
        return copy->op == GGML_OP_CPY && (copy->flags & GGML_TENSOR_FLAG_COMPUTE) && copy->src[0]->view_src == net &&
               copy->src[0]->view_offs == answers && ggml_nelements(copy->src[0]) == size * sequences * kept &&
               to->type == GGML_TYPE_F32 && to->nb[0] == sizeof(float) && to->ne[0] == size && to->ne[1] == sequences &&
               to->ne[2] == kept && to->ne[3] == 1;
    }

    bool gives_same_rows(const ggml_tensor * states, const ggml_tensor * to) const {
        const ggml_tensor * cache   = states->src[0];
        const ggml_tensor * numbers = states->src[1];
        if (cache->type != GGML_TYPE_F32 || numbers->type != GGML_TYPE_I32 || cache->ne[0] != to->ne[0] ||
            numbers->ne[0] != to->ne[1]) {
            return false;
        }
        for (int64_t i = 0; i < numbers->ne[0]; i++) {
            const int32_t number = *(const int32_t *) ((const char *) numbers->data + i * numbers->nb[0]);
            if ((char *) cache->data + number * cache->nb[1] != (char *) to->data + i * to->nb[1]) {
                return false;
            }
        }
        return true;
    }
};

}  // namespace jan_serve

// Whether this node's rows are read where they lie by a delta net further on, so that they need not be copied.
bool jan_serve_stays_in_cache(const ggml_compute_params * params, const ggml_cgraph * graph, int node) {
    const ggml_tensor * rows = graph->nodes[node];
    if (rows->op != GGML_OP_GET_ROWS) {
        return false;
    }
    const int end = std::min(node + 64, graph->n_nodes);  // a block of a model has fewer nodes from the states to the net
    for (int i = node + 1; i < end; i++) {
        if (graph->nodes[i]->op == GGML_OP_GATED_DELTA_NET) {
            const jan_serve::StatesInPlace states(params, graph, i);
            return states.rows() == rows && states.copy() != -1;
        }
    }
    return false;
}

// To be called by each thread: computes this node, if it is a delta net whose states stay in the cache, and says how many
// further nodes that makes unnecessary.
int jan_serve_update_cache(const ggml_compute_params * params, const ggml_cgraph * graph, int node) {
    const int copy = jan_serve::StatesInPlace(params, graph, node).copy();
    if (copy == -1) {
        return 0;
    }
    jan_serve::DeltaNet(params, graph->nodes[node], graph->nodes[copy]->src[1]).run();
    return copy - node;
}
#else
bool jan_serve_stays_in_cache(const ggml_compute_params *, const ggml_cgraph *, int) {
    return false;
}

int jan_serve_update_cache(const ggml_compute_params *, const ggml_cgraph *, int) {
    return 0;
}
#endif
