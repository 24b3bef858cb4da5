// An app without a training function: the library trains the task's ready model on its rows.
//
//     ready OPTIONS.json
//
// The task's model is `linear` with 4 inputs and 2 classes.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tributary.h"

enum { ROWS = 64, WIDTH = 4 };

static void expect(const char *what, TributaryCode got, TributaryCode expected, const char *words) {
    char reason[1024] = "";
    tributary_last_error(reason, sizeof reason, NULL);
    if (got != expected || strstr(reason, words) == NULL) {
        fprintf(stderr, "%s gave %d where %d was expected: %s\n", what, (int)got, (int)expected, reason);
        exit(1);
    }
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    static float features[ROWS * WIDTH];
    static uint32_t labels[ROWS], wrong[ROWS];
    for (int row = 0; row < ROWS; ++row) {
        labels[row] = (uint32_t)row % 2;
        wrong[row] = 7;
        for (int column = 0; column < WIDTH; ++column) {
            features[row * WIDTH + column] = (float)((row * 7 + column * 3) % 10) / 10 + (column % 2 == row % 2 ? 1 : 0);
        }
    }
    TributaryParticipant participant;
    expect("start", tributary_start(options, NULL, &participant), TRIBUTARY_CODE_OK, "");
    for (;;) {
        TributaryJob job;
        TributaryCode code = tributary_next(participant, 60000, &job);
        if (code == TRIBUTARY_CODE_ENDED) {
            break;
        }
        if (code == TRIBUTARY_CODE_NOTHING) {
            continue;
        }
        expect("next", code, TRIBUTARY_CODE_OK, "");
        expect("no rows", tributary_job_train(job, features, labels, 0, WIDTH), TRIBUTARY_CODE_UPDATE, "at least one");
        expect("NULL", tributary_job_train(job, NULL, labels, ROWS, WIDTH), TRIBUTARY_CODE_ARGUMENT, "features is NULL");
        expect("too many", tributary_job_train(job, features, labels, SIZE_MAX, 2), TRIBUTARY_CODE_ARGUMENT, "too many");
        expect("too wide", tributary_job_train(job, features, labels, ROWS / 2, WIDTH * 2), TRIBUTARY_CODE_UPDATE, "");
        expect("no class", tributary_job_train(job, features, wrong, ROWS, WIDTH), TRIBUTARY_CODE_UPDATE, "");
        expect("train", tributary_job_train(job, features, labels, ROWS, WIDTH), TRIBUTARY_CODE_OK, "");
        expect("twice", tributary_job_train(job, features, labels, ROWS, WIDTH), TRIBUTARY_CODE_CLOSED, "");
    }
    expect("close", tributary_close(participant, 10000), TRIBUTARY_CODE_OK, "");
    puts("ready: the library trained");
    return 0;
}
