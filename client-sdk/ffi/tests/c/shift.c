// Adds a number to every parameter: what the participants of all languages do in `.ci/sdks.sh`, which compares their bits.
//
//     shift OPTIONS.json NUMBER [MOMENT]
//
// It adds to one half of the parameters, saves a checkpoint, and adds to the other. MOMENT is when it is killed: at an event of this name, in the
// `middle` of its training, or once it has `answered`.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tributary.h"

static void die_at(const char *moment, const char *now) {
    if (moment != NULL && strcmp(moment, now) == 0) {
        raise(SIGKILL);
    }
}

static void on_event(void *moment, const char *name, const char *fields) {
    (void)fields;
    die_at(moment, name);
}

static TributaryCode train(TributaryJob job, float number, const char *moment) {
    float *values;
    size_t length, saved;
    TributaryCode code = tributary_job_parameters(job, &values, &length);
    if (code != TRIBUTARY_CODE_OK) {
        return code;
    }
    size_t bytes = length * sizeof *values, half = length / 2;
    code = tributary_job_checkpoint(job, (uint8_t *)values, bytes, &saved);
    if (code == TRIBUTARY_CODE_OK && saved == bytes) {
        fprintf(stderr, "c: goes on from its checkpoint\n");
    } else {
        for (size_t index = 0; index < half; ++index) {
            values[index] += number;
        }
        code = tributary_job_save_checkpoint(job, (const uint8_t *)values, bytes);
        if (code != TRIBUTARY_CODE_OK) {
            return code;
        }
    }
    die_at(moment, "middle");
    for (size_t index = half; index < length; ++index) {
        values[index] += number;
    }
    code = tributary_job_finish(job, NULL, 0, 10, NULL, 0);
    die_at(moment, "answered");
    return code;
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count >= 3 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    float number = strtof(arguments[2], NULL);
    char *moment = count > 3 ? arguments[3] : NULL;
    TributaryCallbacks callbacks = {.context = moment, .on_event = on_event};
    TributaryParticipant participant;
    TributaryJob job;
    TributaryCode code = tributary_start(options, &callbacks, &participant);
    while (code == TRIBUTARY_CODE_OK || code == TRIBUTARY_CODE_NOTHING) {
        code = tributary_next(participant, 60000, &job);
        if (code == TRIBUTARY_CODE_OK) {
            fprintf(stderr, "c: handed in, %d\n", (int)train(job, number, moment));
        }
    }
    char text[4096];
    if (code != TRIBUTARY_CODE_ENDED) {
        tributary_last_error(text, sizeof text, NULL);
        fprintf(stderr, "c: %s\n", text);
        return 1;
    }
    tributary_privacy_spent(participant, text, sizeof text, NULL);
    printf("%s\n", text);
    return tributary_close(participant, 10000) == TRIBUTARY_CODE_OK ? 0 : 1;
}
