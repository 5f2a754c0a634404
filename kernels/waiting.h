// How ggml's threads wait for each other at the end of an operation, and where they need not. They look for a while, which is enough
// where each of them has a core, and then sleep: a thread that kept its core would keep it from the one that it waits for wherever
// other programs run.
#pragma once

#define JAN_SERVE_LOOKS 512  // some twenty microseconds

#ifdef __linux__
#    include <limits.h>
#    include <linux/futex.h>
#    include <sys/syscall.h>
#    include <unistd.h>

static atomic_int jan_serve_sleepers;  // of all pools: to wake nobody costs a call

// Until `counter` is not `value`, or for no reason.
static void jan_serve_sleep(atomic_int * counter, int value) {
    atomic_fetch_add_explicit(&jan_serve_sleepers, 1, memory_order_seq_cst);
    syscall(SYS_futex, counter, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    atomic_fetch_sub_explicit(&jan_serve_sleepers, 1, memory_order_seq_cst);
}

// To be called after each change of `counter`.
static void jan_serve_wake(atomic_int * counter) {
    if (atomic_load_explicit(&jan_serve_sleepers, memory_order_seq_cst)) {
        syscall(SYS_futex, counter, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}
#else
static void jan_serve_sleep(atomic_int * counter, int value) {
    (void) counter;
    (void) value;
    sched_yield();
}

static void jan_serve_wake(atomic_int * counter) {
    (void) counter;
}
#endif

// Before the first chunk of an operation, which is chunk i of thread i. waits: until all threads have come here.
void jan_serve_begin_chunks(const struct ggml_compute_params * params, bool waits) {
#ifdef GGML_USE_OPENMP  // its barrier sets no counter
    if (params->ith == 0) {
        atomic_store_explicit(&params->threadpool->jan_serve_chunk, params->nth, memory_order_relaxed);
    }
    waits = true;
#endif
    if (params->nth == 1) {
        atomic_store_explicit(&params->threadpool->jan_serve_chunk, 1, memory_order_relaxed);
    } else if (waits) {
        ggml_barrier(params->threadpool);
    }
}

int jan_serve_next_chunk(struct ggml_threadpool * pool) {
    return atomic_fetch_add_explicit(&pool->jan_serve_chunk, 1, memory_order_relaxed);
}

// Whether the first thread computes all of a node: those of these operations divide rows, and there is one.
static bool jan_serve_is_alone(const struct ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_ADD:
        case GGML_OP_GLU:
        case GGML_OP_MUL:
        case GGML_OP_RMS_NORM:
        case GGML_OP_SCALE:
            break;
        default:
            return false;
    }
    for (int i = 0; i < 2 && node->src[i]; i++) {
        if (node->src[i]->type != GGML_TYPE_F32 || ggml_nrows(node->src[i]) != 1) {
            return false;
        }
    }
    return ggml_nrows(node) == 1;
}

// Whether threads need not meet between this node and the next one, because the first thread computes both.
static bool jan_serve_goes_on(const struct ggml_cgraph * graph, int index) {
    if (!jan_serve_is_alone(graph->nodes[index])) {
        return false;
    }
    while (++index < graph->n_nodes) {
        const struct ggml_tensor * next = graph->nodes[index];
        if (!ggml_op_is_empty(next->op) && (next->flags & GGML_TENSOR_FLAG_COMPUTE)) {
            return jan_serve_is_alone(next);
        }
    }
    return false;
}
