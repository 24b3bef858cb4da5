// A stand-in for NVIDIA's driver library, for tests: the few functions that `src/cuda` reaches through cudarc, with main
// memory for device memory and the kernels' own text for the kernels. It shows that the calls, their order and the
// kernels' arguments are right, that seeds are wiped before their memory is freed, and it fails on demand:
//   STAND_IN_MEMORY    bytes of memory of each device
//   STAND_IN_LAUNCHES  launches after which the device is lost; it is lost as well after a kernel named `fault` (gpu/fault.c)
//   STAND_IN_CLOCK     clock in kHz that the devices tell
//   STAND_IN_EAGER     streams work at once; otherwise they do nothing before someone waits for them
//
// Streams are queues. What is queued is done when somebody waits for it, and not before: a kernel that did not wait for the
// copy of its input, or page-locked memory that was touched while it travelled, gives a wrong answer. Whatever travels must
// be in page-locked memory. When the process ends, it tells how many uploads were under way at the same
// time, and how many kernels were launched.
#include "../../src/cuda/host.cpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

typedef int Result;
enum { OK = 0, OUT_OF_MEMORY = 2, INVALID = 1, NOT_READY = 600, LAUNCH_FAILED = 719 };

struct Block { size_t bytes; bool seeds; };
struct Stream { std::deque<std::function<void()>> queue; size_t done = 0; size_t uploads = 0; };
struct Event { Stream *stream = nullptr; size_t place = 0; int looks = 0; };
static std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> Guard;
static std::map<char *, Block> device_memory, host_memory;
static std::vector<Stream *> streams;
static size_t used = 0, uploads_under_way = 0;
static long launches = 0;

static size_t number(const char *name, size_t otherwise) {
    const char *value = getenv(name);
    return value ? strtoull(value, nullptr, 10) : otherwise;
}

static bool trapped = false;
static bool lost() { return trapped || launches > (long)number("STAND_IN_LAUNCHES", 1ul << 40); }

[[noreturn]] static void fault(const char *what) {
    fprintf(stderr, "the stand-in driver found a fault: %s\n", what);
    abort();
}

// Does what was queued before `place`.
static void run(Stream *stream, size_t place) {
    while (stream->done < place && !stream->queue.empty()) {
        auto work = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->done++;
        work();
    }
}

static void run_all(Stream *stream) { run(stream, stream->done + stream->queue.size()); }

static void queue(void *stream, std::function<void()> work) {
    auto *to = (Stream *)stream;
    if (!to) fault("work in the stream that waits for all others");
    to->queue.push_back(std::move(work));
    if (number("STAND_IN_EAGER", 0)) run_all(to);
}

static struct AtEnd {
    ~AtEnd() {
        fprintf(stderr, "uploads under way at the same time: %zu\n", uploads_under_way);
        fprintf(stderr, "kernels launched: %ld\n", launches);
    }
} at_end;

// Whether the bytes lie inside one block.
static Block *inside(std::map<char *, Block> &memory, const void *at, size_t bytes) {
    auto next = memory.upper_bound((char *)at);
    if (next == memory.begin()) return nullptr;
    auto &[start, block] = *--next;
    return (char *)at + bytes <= start + block.bytes ? &block : nullptr;
}

static Block *must_be_inside(unsigned long long at, size_t bytes) {
    Block *block = inside(device_memory, (void *)at, bytes);
    if (!block) fault("an access outside the device's memory");
    return block;
}

static void must_be_page_locked(const void *at, size_t bytes) {
    if (!inside(host_memory, at, bytes)) fault("a copy from or to memory that is not page-locked");
}

static void must_be_wiped(const char *start, size_t bytes, const char *what) {
    for (size_t i = 0; i < bytes; i++)
        if (start[i]) fault(what);
}

extern "C" {
Result cuInit(unsigned) { return OK; }
Result cuDeviceGetCount(int *count) { return *count = 2, OK; }
Result cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
Result cuDeviceGetName(char *name, int len, int) { return snprintf(name, len, "stand-in"), OK; }
Result cuDeviceGetAttribute(int *value, int attribute, int) {
    switch (attribute) {
        case 13: *value = (int)number("STAND_IN_CLOCK", 1000); break;   // in kHz: launches of 480 kB of keystream
        case 16: *value = 2; break;      // multiprocessors
        case 75: *value = 9; break;      // compute capability
        case 76: *value = 0; break;
        default: *value = 1;
    }
    return OK;
}
Result cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(long)(device + 1), OK; }
Result cuDevicePrimaryCtxRelease_v2(int) { return OK; }
Result cuCtxSetCurrent(void *) { return OK; }
Result cuCtxGetCurrent(void **context) { return *context = nullptr, OK; }
Result cuCtxSynchronize() { return lost() ? LAUNCH_FAILED : OK; }
Result cuGetErrorString(Result error, const char **text) {
    return *text = error == LAUNCH_FAILED ? "unspecified launch failure" : "an error", OK;
}
Result cuGetErrorName(Result, const char **text) { return *text = "AN_ERROR", OK; }

Result cuStreamCreate(void **stream, unsigned) {
    Guard guard(lock);
    return *stream = streams.emplace_back(new Stream), OK;
}
Result cuStreamDestroy_v2(void *) { return OK; }
Result cuStreamSynchronize(void *stream) {
    Guard guard(lock);
    if (stream) run_all((Stream *)stream);
    return lost() ? LAUNCH_FAILED : OK;
}
Result cuStreamWaitEvent(void *stream, void *event, unsigned) {
    Guard guard(lock);
    // As it was last recorded; one that never was is nothing to wait for.
    const Event awaited = *(Event *)event;
    if (awaited.stream) queue(stream, [=] { run(awaited.stream, awaited.place); });
    return OK;
}
Result cuEventCreate(void **event, unsigned) { return *event = new Event, OK; }
Result cuEventDestroy_v2(void *event) { return delete (Event *)event, OK; }
Result cuEventRecord(void *event, void *stream) {
    Guard guard(lock);
    auto *on = (Stream *)stream;
    *(Event *)event = Event{on, on->done + on->queue.size(), 0};
    return OK;
}
Result cuEventSynchronize(void *event) {
    Guard guard(lock);
    auto *awaited = (Event *)event;
    if (awaited->stream) run(awaited->stream, awaited->place);
    return OK;
}
// Not done at the first looks, unless it is.
Result cuEventQuery(void *event) {
    Guard guard(lock);
    auto *awaited = (Event *)event;
    if (lost()) return LAUNCH_FAILED;
    if (!awaited->stream || awaited->stream->done >= awaited->place) return OK;
    if (awaited->looks++ < 2) return NOT_READY;
    run(awaited->stream, awaited->place);
    return OK;
}

Result cuMemAllocAsync(unsigned long long *at, size_t bytes, void *) {
    Guard guard(lock);
    if (lost()) return LAUNCH_FAILED;
    const size_t most = number("STAND_IN_MEMORY", 1ul << 40);
    // What was freed in a stream is free once that stream has come so far.
    if (used + bytes > most)
        for (Stream *stream : streams) run_all(stream);
    if (used + bytes > most) return OUT_OF_MEMORY;
    char *start = (char *)aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(start, 0xa5, bytes);
    device_memory[start] = Block{bytes, false};
    used += bytes;
    *at = (unsigned long long)start;
    return OK;
}
Result cuMemFreeAsync(unsigned long long at, void *stream) {
    Guard guard(lock);
    queue(stream, [=] {
        auto found = device_memory.find((char *)at);
        if (found == device_memory.end()) fault("memory freed that was never given");
        auto [start, block] = *found;
        if (block.seeds && !lost()) must_be_wiped(start, block.bytes, "seeds were left in device memory that was freed");
        used -= block.bytes;
        free(start);
        device_memory.erase(found);
    });
    return OK;
}
Result cuMemsetD8Async(unsigned long long at, unsigned char value, size_t bytes, void *stream) {
    Guard guard(lock);
    must_be_inside(at, bytes);
    queue(stream, [=] {
        must_be_inside(at, bytes);
        memset((void *)at, value, bytes);
    });
    return OK;
}
Result cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream) {
    Guard guard(lock);
    must_be_inside(to, bytes);
    must_be_page_locked(from, bytes);
    const size_t under_way = ++((Stream *)stream)->uploads;
    uploads_under_way = uploads_under_way < under_way ? under_way : uploads_under_way;
    queue(stream, [=] {
        must_be_inside(to, bytes);
        must_be_page_locked(from, bytes);
        ((Stream *)stream)->uploads--;
        memcpy((void *)to, from, bytes);
    });
    return OK;
}
Result cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream) {
    Guard guard(lock);
    must_be_inside(from, bytes);
    must_be_page_locked(to, bytes);
    queue(stream, [=] {
        must_be_inside(from, bytes);
        must_be_page_locked(to, bytes);
        memcpy(to, (void *)from, bytes);
    });
    return OK;
}
Result cuMemHostAlloc(void **at, size_t bytes, unsigned) {
    Guard guard(lock);
    *at = malloc(bytes);
    memset(*at, 0x5a, bytes);
    host_memory[(char *)*at] = Block{bytes, true};
    return OK;
}
Result cuMemFreeHost(void *at) {
    Guard guard(lock);
    auto found = host_memory.find((char *)at);
    if (found == host_memory.end()) fault("page-locked memory freed that was never given");
    must_be_wiped(found->first, found->second.bytes, "page-locked memory was freed before it was wiped");
    free(at);
    host_memory.erase(found);
    return OK;
}

Result cuModuleLoadData(void **module, const void *text) {
    const bool ours = strstr((const char *)text, ".visible .entry unmask(");
    if (!ours && !strstr((const char *)text, ".visible .entry fault(")) return INVALID;
    return *module = (void *)1, OK;
}
Result cuModuleUnload(void *) { return OK; }
Result cuModuleGetFunction(void **function, void *, const char *name) {
    static const char *names[] = {"unmask", "add_packed", "trimmed_sum", "gram", "fault"};
    *function = nullptr;
    for (long i = 0; i < 5; i++)
        if (!strcmp(name, names[i])) *function = (void *)(i + 1);
    return *function ? OK : INVALID;
}
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **arguments, void **) {
    Guard guard(lock);
    launches++;
    if (lost()) return LAUNCH_FAILED;
    if (gy > 65535 || gz != 1 || by != 1 || bz != 1 || bx > 256 || shared) fault("a launch of an odd shape");
    auto address = [&](int i) { return *(unsigned long long *)arguments[i]; };
    auto word = [&](int i) { return *(u32 *)arguments[i]; };
    const u64 threads = (u64)gx * bx;
    if (function == (void *)5) return trapped = true, OK;
    if (function == (void *)1) {
        const auto records = address(0), sum = address(1);
        const u64 len = address(2), seeds = sizeof(Seed) * ((u64)word(3) + word(4));
        const u32 first = word(3), count = word(4), block = word(5), nonce0 = word(6), nonce1 = word(7);
        if (threads * 16 < len) fault("a launch that leaves words out");
        must_be_inside(records, seeds)->seeds = true;
        queue(stream, [=] {
            must_be_inside(records, seeds);
            must_be_inside(sum, 4 * len);
            host_unmask(gx, gy, bx, (const Seed *)records, (u32 *)sum, len, first, count, block, nonce0, nonce1);
        });
    } else if (function == (void *)2) {
        const auto sum = address(0), packed = address(2);
        const u64 at = address(1), len = address(3);
        const u32 bits = word(4);
        if (threads < len) fault("a launch that leaves words out");
        queue(stream, [=] {
            must_be_inside(sum, 4 * (at + len));
            must_be_inside(packed, 4 * (((len - 1) * bits) / 32 + 2));
            host_add_packed(gx, bx, (u32 *)sum, at, (const u32 *)packed, len, bits);
        });
    } else if (function == (void *)3) {
        const auto rows = address(0), out = address(4);
        const u32 vectors = word(1), width = word(2), trim = word(3);
        if (threads < width || 2 * trim >= vectors) fault("a launch that leaves columns out, or trims all of them");
        queue(stream, [=] {
            must_be_inside(rows, 4ul * vectors * width);
            must_be_inside(out, 8ul * width);
            host_trimmed_sum(gx, bx, (const u32 *)rows, vectors, width, trim, (u32 *)out);
        });
    } else {
        const auto rows = address(0), sums = address(5);
        const u32 vectors = word(1), width = word(2), first_tile = word(3), first_row = word(4);
        const u32 tiles = (vectors + 3) / 4, last_tile = first_tile + gy / tiles;
        const u32 end = 4 * last_tile < vectors ? 4 * last_tile : vectors;
        if (gy % tiles || last_tile > tiles || 4 * first_tile < first_row) fault("a launch of tiles that are not there");
        queue(stream, [=] {
            must_be_inside(rows, 4ul * vectors * width);
            must_be_inside(sums, 8ul * (end - first_row) * vectors);
            host_gram(gx, gy, bx, (const u32 *)rows, vectors, width, first_tile, first_row, (u64 *)sums);
        });
    }
    return OK;
}
}
