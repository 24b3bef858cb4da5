// A device that answers an analysis with its rows.
//
//     analysis OPTIONS.json
//
// The task is `statistics` of an age and a group in one round, and OPTIONS.json says `answers_analyses`.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "tributary.h"

enum { ROWS = 3, WIDTH = 2 };

static const double VALUES[ROWS * WIDTH] = {16, 0, 40, 1, 94, 1};

static void answer(TributaryJob job) {
    double wrong[ROWS * WIDTH];
    const char *json;
    float *parameters;
    size_t count;
    EXPECT_WORDS(ARGUMENT, "json is NULL", tributary_job_analysis(job, NULL));
    EXPECT(OK, tributary_job_analysis(job, &json));
    CHECK(strstr(json, "\"kind\":\"statistics\"") != NULL && strstr(json, "\"age\"") != NULL);
    EXPECT(OK, tributary_job_parameters(job, &parameters, &count));
    CHECK(count == 0);
    EXPECT_WORDS(UPDATE, "it takes rows, and no model", tributary_job_finish(job, NULL, 0, ROWS, NULL, 0));
    EXPECT_WORDS(ARGUMENT, "values is NULL", tributary_job_give_rows(job, NULL, ROWS, WIDTH, NULL));
    EXPECT_WORDS(ARGUMENT, "too many", tributary_job_give_rows(job, VALUES, SIZE_MAX, WIDTH, NULL));
    EXPECT_WORDS(UPDATE, "columns: got 3 where 2", tributary_job_give_rows(job, VALUES, WIDTH, ROWS, NULL));
    EXPECT_WORDS(UPDATE, "no rows", tributary_job_give_rows(job, VALUES, 0, WIDTH, NULL));
    memcpy(wrong, VALUES, sizeof wrong);
    wrong[3] = NAN;
    EXPECT_WORDS(UPDATE, "row 1, column 1", tributary_job_give_rows(job, wrong, ROWS, WIDTH, NULL));
    EXPECT(OK, tributary_job_give_rows(job, VALUES, ROWS, WIDTH, NULL));
    EXPECT(CLOSED, tributary_job_give_rows(job, VALUES, ROWS, WIDTH, NULL));
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fread(options, 1, sizeof options - 1, file) == 0) {
        return 2;
    }
    fclose(file);
    TributaryParticipant participant;
    EXPECT(OK, tributary_start(options, NULL, &participant));
    unsigned jobs = 0;
    TributaryJob job;
    while (has_job(participant, &job)) {
        answer(job);
        ++jobs;
    }
    CHECK(jobs == 1);
    EXPECT(OK, tributary_close(participant, 10000));
    printf("analysis: one round, answered with %d rows\n", ROWS);
    return 0;
}
