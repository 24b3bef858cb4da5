// Adds a number to every parameter: what the participants of all languages do in `.ci/sdks.sh`, which compares their bits.
//
//     shift OPTIONS.json NUMBER [die]
//
// With `die` it is killed in the middle of its first job.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tributary.h"

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count >= 3 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    float number = strtof(arguments[2], NULL);
    TributaryParticipant participant;
    TributaryJob job;
    TributaryCode code = tributary_start(options, NULL, &participant);
    while (code == TRIBUTARY_CODE_OK || code == TRIBUTARY_CODE_NOTHING) {
        code = tributary_next(participant, 60000, &job);
        if (code == TRIBUTARY_CODE_OK) {
            if (count > 3) {
                raise(SIGKILL);
            }
            float *values;
            size_t length;
            tributary_job_parameters(job, &values, &length);
            for (size_t index = 0; index < length; ++index) {
                values[index] += number;
            }
            TributaryCode sent = tributary_job_finish(job, NULL, 0, 10, NULL, 0);
            fprintf(stderr, "c: handed in, %d\n", (int)sent);
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
