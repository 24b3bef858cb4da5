// Adds a number to every parameter: what the participants of all languages do in `.ci/sdks.sh`, which compares their bits.
//
//     shift OPTIONS.json NUMBER [MOMENT]
//
// It adds to one half of the parameters, saves a checkpoint, and adds to the other. MOMENT is when it is killed: at an event of this name, in the
// `middle` of its training, or once it has `answered`. With TRIBUTARY_DRIVEN in its environment it drives the participant itself.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

typedef struct {
    float number;
    const char *moment;
} Shift;

static TributaryCode take_part(const char *options, const TributaryCallbacks *callbacks, Shift shift, char *spent, size_t size) {
    TributaryParticipant participant;
    TributaryJob job;
    TributaryCode code = tributary_start(options, callbacks, &participant);
    while (code == TRIBUTARY_CODE_OK || code == TRIBUTARY_CODE_NOTHING) {
        code = tributary_next(participant, 60000, &job);
        if (code == TRIBUTARY_CODE_OK) {
            fprintf(stderr, "c: handed in, %d\n", (int)train(job, shift.number, shift.moment));
        }
    }
    if (code != TRIBUTARY_CODE_ENDED) {
        return code;
    }
    tributary_privacy_spent(participant, spent, size, NULL);
    return tributary_close(participant, 10000);
}

static void train_driven(void *context, TributaryJob job) {
    const Shift *shift = context;
    fprintf(stderr, "c: handed in, %d\n", (int)train(job, shift->number, shift->moment));
}

static TributaryCode drive(const char *options, const TributaryCallbacks *callbacks, Shift shift, char *spent, size_t size) {
    TributaryMachine machine;
    TributaryCode code = tributary_machine_open(options, callbacks, &machine);
    while (code == TRIBUTARY_CODE_OK || code == TRIBUTARY_CODE_NOTHING) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        TributaryCircumstances circumstances = {
            .elapsed_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
            .device = {TRIBUTARY_UNKNOWN, TRIBUTARY_UNKNOWN, TRIBUTARY_UNKNOWN, TRIBUTARY_UNKNOWN, TRIBUTARY_UNKNOWN},
            .examples = 10,
        };
        TributaryTodo todo;
        uint64_t until;
        code = tributary_machine_tick(machine, &circumstances, &todo, &until);
        if (code == TRIBUTARY_CODE_OK && todo == TRIBUTARY_TODO_WAIT_UNTIL) {
            usleep(20000); // Earlier than it says does no harm.
        } else if (code == TRIBUTARY_CODE_OK) {
            code = tributary_machine_perform(machine, train_driven, &shift);
        }
    }
    if (code != TRIBUTARY_CODE_ENDED) {
        return code;
    }
    tributary_machine_privacy_spent(machine, spent, size, NULL);
    return tributary_machine_close(machine);
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count >= 3 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    char *moment = count > 3 ? arguments[3] : NULL;
    Shift shift = {.number = strtof(arguments[2], NULL), .moment = moment};
    TributaryCallbacks callbacks = {.context = moment, .on_event = on_event};
    char text[4096];
    TributaryCode (*work)(const char *, const TributaryCallbacks *, Shift, char *, size_t) =
        getenv("TRIBUTARY_DRIVEN") != NULL ? drive : take_part;
    TributaryCode code = work(options, &callbacks, shift, text, sizeof text);
    if (code != TRIBUTARY_CODE_OK) {
        tributary_last_error(text, sizeof text, NULL);
        fprintf(stderr, "c: %s\n", text);
        return 1;
    }
    printf("%s\n", text);
    return 0;
}
