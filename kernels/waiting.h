// How ggml's threads wait for each other at the end of an operation: they look for a while, which is enough where each of them has
// a core, and then sleep. A thread that kept its core would keep it from the one that it waits for wherever other programs run.
#pragma once

#define JAN_SERVE_LOOKS 256  // some ten microseconds

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
