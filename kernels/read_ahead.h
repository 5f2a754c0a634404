// Reads the weights of experts from the file before they are multiplied, where memory does not hold the whole model.
//
// A token chooses a few experts of each layer. What a fault of a page reads around it is of other experts, or too little, and threads
// wait for it one after the other. To ask for pages that are in memory takes as long as a token's products: so they are asked for
// only for some operations after one that waited for the disk.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __linux__
#    include <sys/mman.h>
#    include <sys/resource.h>
#    include <unistd.h>

#    include <atomic>
#endif

namespace jan_serve {

constexpr int64_t EXPERTS_AHEAD = 8;  // of those that an operation reads

class ReadAhead {
  public:
#ifdef __linux__
    // To be called once for each operation, always by the same thread of those that compute it.
    static void look() {
        static thread_local long seen = 0;  // faults of this thread that waited for the disk
        rusage                   usage;
        if (getrusage(RUSAGE_THREAD, &usage) == 0 && usage.ru_majflt != seen) {
            seen = usage.ru_majflt;
            left = OPERATIONS;
        } else if (left > 0) {
            left--;
        }
    }

    static void ask_for(const char * bytes, size_t size) {
        if (left > 0) {
            static const uintptr_t page  = sysconf(_SC_PAGESIZE);
            const uintptr_t        begin = (uintptr_t) bytes / page * page;
            madvise((void *) begin, (uintptr_t) bytes + size - begin, MADV_WILLNEED);
        }
    }

  private:
    static constexpr int OPERATIONS = 1024;

    static inline std::atomic<int> left{ 0 };
#else
    static void look() {}

    static void ask_for(const char *, size_t) {}
#endif
};

}  // namespace jan_serve
