// How long it takes from loading the library to the first request for a job, in milliseconds: the median of the rounds that a
// shell script runs is what docs/MOBILE.md says. It links nothing of ours, and loads the library as an app does.
//
//     cold_start LIBRARY OPTIONS.json

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#include "tributary.h"

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
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
    TributaryCode (*next)(TributaryParticipant, uint64_t, TributaryJob *);
    TributaryCode (*close)(TributaryParticipant, uint64_t);
    *(void **)&start = dlsym(library, "tributary_start");
    *(void **)&next = dlsym(library, "tributary_next");
    *(void **)&close = dlsym(library, "tributary_close");
    TributaryParticipant participant;
    TributaryJob job;
    if (start(options, NULL, &participant) != TRIBUTARY_CODE_OK) {
        return 1;
    }
    double started = now_ms();
    if (next(participant, 0, &job) != TRIBUTARY_CODE_NOTHING) {
        return 1;
    }
    printf("%.2f ms to load, %.2f to start, %.2f to ask for a job: %.2f in all\n", loaded - begin, started - loaded,
           now_ms() - started, now_ms() - begin);
    return close(participant, 10000) == TRIBUTARY_CODE_OK ? 0 : 1;
}
