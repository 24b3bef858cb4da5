// How long it takes from loading the library to its first poll for a job, in milliseconds, beside the limit of docs/MOBILE.md. The clock
// stops when the library hands the poll to an HTTP client: from there on the network and TLS count. Whoever has no certificate yet asks
// for one first; then the clock stops at that request, and the library enrols over its own HTTPS, so that the next time begins with a
// poll. It links nothing of ours, and loads the library as an app does.
//
//     cold_start LIBRARY OPTIONS.json

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tributary.h"

enum { LIMIT_MS = 50 };

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

// The first request, and when it went out; both are there once `is_known`.
typedef struct {
    TributaryCode (*fail)(TributaryExchange, const char *);
    atomic_int is_begun, is_known;
    double at;
    char path[64];
} FirstRequest;

static void begin_request(void *context, TributaryExchange exchange, const TributaryRequest *request) {
    double at = now_ms();
    FirstRequest *first = context;
    if (atomic_exchange(&first->is_begun, 1) == 0) {
        first->at = at;
        snprintf(first->path, sizeof first->path, "%s", request->path);
        atomic_store(&first->is_known, 1);
    }
    first->fail(exchange, "nothing but the time was wanted");
}

static int show_certificate(void *context, const char *certificate, const uint8_t *key, size_t key_bytes) {
    (void)context, (void)certificate, (void)key, (void)key_bytes;
    return 0;
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count == 3 ? fopen(arguments[2], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    double begin = now_ms();
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    double loaded = now_ms();
    TributaryCode (*start)(const char *, const TributaryCallbacks *, TributaryParticipant *);
    TributaryCode (*id)(TributaryParticipant, char *, size_t, size_t *);
    TributaryCode (*end)(TributaryParticipant, uint64_t);
    static FirstRequest first;
    *(void **)&start = dlsym(library, "tributary_start");
    *(void **)&id = dlsym(library, "tributary_id");
    *(void **)&end = dlsym(library, "tributary_close");
    *(void **)&first.fail = dlsym(library, "tributary_exchange_fail");
    TributaryCallbacks app = {.context = &first, .begin_request = begin_request, .show_certificate = show_certificate};
    TributaryParticipant participant;
    if (start(options, &app, &participant) != TRIBUTARY_CODE_OK) {
        return 1;
    }
    double started = now_ms();
    for (int waited_ms = 0; !atomic_load(&first.is_known); ++waited_ms) {
        if (waited_ms == 10000) {
            fprintf(stderr, "nothing was sent\n");
            return 1;
        }
        usleep(1000);
    }
    double took = first.at - begin;
    int is_poll = strcmp(first.path, "/v1/check-in") == 0;
    printf("%.2f ms to load, %.2f to start, %.2f from loading to the first %s (limit %d ms)%s\n", loaded - begin, started - loaded, took,
           is_poll ? "poll" : "request, which is no poll yet", LIMIT_MS, took > LIMIT_MS ? ": too slow" : "");
    if (end(participant, 10000) != TRIBUTARY_CODE_OK || (!is_poll && start(options, NULL, &participant) != TRIBUTARY_CODE_OK)) {
        return 1;
    }
    if (is_poll) {
        return 0;
    }
    char own[64];
    while (id(participant, own, sizeof own, NULL) == TRIBUTARY_CODE_NOTHING) {
        usleep(10000);
    }
    return end(participant, 10000) == TRIBUTARY_CODE_OK ? 0 : 1;
}
