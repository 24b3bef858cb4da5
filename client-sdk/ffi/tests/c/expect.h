// What the C tests say when a call does not give what it must: included by each of them.
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tributary.h"

// `words` is in the reason for the last error, of which this thread is told.
static void expect_at(const char *file, int line, const char *call, TributaryCode got, TributaryCode expected, const char *words) {
    char reason[1024] = "";
    tributary_last_error(reason, sizeof reason, NULL);
    if (got != expected || strstr(reason, words) == NULL) {
        fprintf(stderr, "%s:%d: %s gave %d where %d was expected; the last error: %s\n", file, line, call, (int)got, (int)expected, reason);
        exit(1);
    }
}
#define EXPECT(code, call) expect_at(__FILE__, __LINE__, #call, call, TRIBUTARY_CODE_##code, "")
#define EXPECT_WORDS(code, words, call) expect_at(__FILE__, __LINE__, #call, call, TRIBUTARY_CODE_##code, words)
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// Waits for the next job, if there is one before the participant has ended.
static inline bool has_job(TributaryParticipant participant, TributaryJob *job) {
    TributaryCode code;
    do {
        code = tributary_next(participant, 60000, job);
    } while (code == TRIBUTARY_CODE_NOTHING);
    if (code != TRIBUTARY_CODE_ENDED) {
        expect_at(__FILE__, __LINE__, "tributary_next", code, TRIBUTARY_CODE_OK, "");
    }
    return code == TRIBUTARY_CODE_OK;
}
