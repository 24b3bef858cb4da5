// An app without a training function: the library trains the task's ready model on its rows, and the app uses the model.
//
//     ready OPTIONS.json [offline | mlp | cnn]
//
// The task's model is `linear` with 4 inputs and 2 classes, and the options have `"required": false`. Prints what the model says of some rows;
// with `offline` it only does that, while the coordinator is gone: by a participant, and without one. With the name of another model it trains
// and uses that in the task of this name: `mlp` takes 4 inputs, and `cnn` images of 4 by 4.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tributary.h"

enum { ROWS = 64, WIDTH = 4, PIXELS = 16 };

static void expect(const char *what, TributaryCode got, TributaryCode expected, const char *words) {
    char reason[1024] = "";
    tributary_last_error(reason, sizeof reason, NULL);
    if (got != expected || strstr(reason, words) == NULL) {
        fprintf(stderr, "%s gave %d where %d was expected: %s\n", what, (int)got, (int)expected, reason);
        exit(1);
    }
}

// What the model says of the first two rows.
typedef struct {
    unsigned version, right;
    float scores[4];
} Used;

static Used use(TributaryModel model, const float *features) {
    TributaryOrigin origin;
    TributaryTensor tensor;
    TributaryMetric metric;
    const float *values;
    size_t parameters, length;
    Used used;
    expect("origin", tributary_model_origin(model, &origin), TRIBUTARY_CODE_OK, "");
    expect("values", tributary_model_parameters(model, &values, &parameters), TRIBUTARY_CODE_OK, "");
    expect("tensor", tributary_model_tensor(model, 0, &tensor), TRIBUTARY_CODE_OK, "");
    expect("beyond", tributary_model_tensor(model, 2, &tensor), TRIBUTARY_CODE_NOTHING, "");
    expect("metric", tributary_model_metric(model, 0, &metric), TRIBUTARY_CODE_NOTHING, "");
    expect("scores", tributary_model_scores(model, features, 2 * WIDTH, used.scores, 3, &length), TRIBUTARY_CODE_TOO_SMALL, "");
    expect("scores", tributary_model_scores(model, features, 2 * WIDTH, used.scores, 4, &length), TRIBUTARY_CODE_OK, "");
    expect("too few", tributary_model_scores(model, features, 3, used.scores, 4, NULL), TRIBUTARY_CODE_ARGUMENT, "");
    used.version = origin.version;
    used.right = (used.scores[0] > used.scores[1]) + (used.scores[3] > used.scores[2]);
    if (length != 4 || parameters != 10 || tensor.dimensions != 2 || origin.round != 0 || strlen(origin.sha256) != 64 ||
        strstr(origin.architecture, "linear") == NULL) {
        fprintf(stderr, "another model than the task's: %zu parameters, %zu scores\n", parameters, length);
        exit(1);
    }
    expect("free", tributary_model_free(model), TRIBUTARY_CODE_OK, "");
    expect("freed", tributary_model_origin(model, &origin), TRIBUTARY_CODE_CLOSED, "");
    return used;
}

static void print(Used used) {
    printf("version %u, scores %g %g, %g %g, right %u of 2\n", used.version, used.scores[0], used.scores[1], used.scores[2],
           used.scores[3], used.right);
}

// Unless the app says otherwise it refuses rounds in the clear, and remembers why.
static void refuse_clear(char *options) {
    static const char lax[] = "\"required\": false", strict[] = "\"required\": true ";
    char *place = strstr(options, lax), said[8192];
    if (place == NULL) {
        fprintf(stderr, "the options have no %s\n", lax);
        exit(1);
    }
    memcpy(place, strict, strlen(strict));
    TributaryParticipant participant;
    expect("start strictly", tributary_start(options, NULL, &participant), TRIBUTARY_CODE_OK, "");
    do {
        usleep(10000);
        expect("refusals", tributary_refusals(participant, said, sizeof said, NULL), TRIBUTARY_CODE_OK, "");
    } while (strcmp(said, "[]") == 0);
    if (strstr(said, "without secure aggregation") == NULL || strstr(said, "\"round\":1") == NULL || strstr(said, "\"times\":") == NULL) {
        fprintf(stderr, "refused: %s\n", said);
        exit(1);
    }
    expect("too small", tributary_refusals(participant, said, 2, NULL), TRIBUTARY_CODE_TOO_SMALL, "");
    expect("close strictly", tributary_close(participant, 10000), TRIBUTARY_CODE_OK, "");
    memcpy(place, lax, strlen(lax));
}

static void another_kind(const char *options, const char *kind, const uint32_t *labels) {
    static float features[ROWS * PIXELS];
    size_t width = strcmp(kind, "cnn") == 0 ? PIXELS : WIDTH, length, parameters;
    for (size_t at = 0; at < ROWS * width; ++at) {
        features[at] = (float)(at * 7 % 10) / 10 + (at % 2 == at / width % 2 ? 1 : 0);
    }
    TributaryParticipant participant;
    TributaryModel model;
    TributaryOrigin origin;
    TributaryJob job;
    TributaryCode code;
    const float *values;
    float scores[4];
    int rounds = 0;
    expect("start", tributary_start(options, NULL, &participant), TRIBUTARY_CODE_OK, "");
    while ((code = tributary_next(participant, 60000, &job)) == TRIBUTARY_CODE_OK || code == TRIBUTARY_CODE_NOTHING) {
        if (code == TRIBUTARY_CODE_OK) {
            expect("another width", tributary_job_train(job, features, labels, ROWS / 2, 2 * width), TRIBUTARY_CODE_UPDATE, "");
            expect("train", tributary_job_train(job, features, labels, ROWS, width), TRIBUTARY_CODE_OK, "");
            ++rounds;
        }
    }
    expect("end", code, TRIBUTARY_CODE_ENDED, "");
    expect("model", tributary_model(participant, kind, &model), TRIBUTARY_CODE_OK, "");
    expect("origin", tributary_model_origin(model, &origin), TRIBUTARY_CODE_OK, "");
    expect("values", tributary_model_parameters(model, &values, &parameters), TRIBUTARY_CODE_OK, "");
    expect("scores", tributary_model_scores(model, features, 2 * width, scores, 4, &length), TRIBUTARY_CODE_OK, "");
    int is_finite = length == 4 && isfinite(scores[0]) && isfinite(scores[1]) && isfinite(scores[2]) && isfinite(scores[3]);
    if (rounds != 1 || origin.version != 1 || strstr(origin.architecture, kind) == NULL || !is_finite) {
        fprintf(stderr, "%s: %d rounds, version %u, %zu scores\n", kind, rounds, (unsigned)origin.version, length);
        exit(1);
    }
    printf("%s: %zu parameters, trained and used\n", kind, parameters);
    expect("free", tributary_model_free(model), TRIBUTARY_CODE_OK, "");
    expect("close", tributary_close(participant, 10000), TRIBUTARY_CODE_OK, "");
}

int main(int count, char **arguments) {
    static char options[1 << 16];
    FILE *file = count >= 2 ? fopen(arguments[1], "rb") : NULL;
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
    TributaryModel model;
    if (count == 3 && strcmp(arguments[2], "offline") != 0) {
        another_kind(options, arguments[2], labels);
        return 0;
    }
    if (count == 3) {
        expect("start offline", tributary_start(options, NULL, &participant), TRIBUTARY_CODE_OK, "");
        expect("model", tributary_model(participant, "ready", &model), TRIBUTARY_CODE_OK, "");
        expect("close", tributary_close(participant, 10000), TRIBUTARY_CODE_OK, "");
        use(model, features);
        expect("no model", tributary_model_load(options, NULL, "another", &model), TRIBUTARY_CODE_NOTHING, "");
        expect("load", tributary_model_load(options, NULL, "ready", &model), TRIBUTARY_CODE_OK, "");
        print(use(model, features));
        return 0;
    }
    refuse_clear(options);
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
    char names[64];
    expect("models", tributary_models(participant, names, sizeof names, NULL), TRIBUTARY_CODE_OK, "");
    expect("their names", strcmp(names, "[\"ready\"]") == 0 ? TRIBUTARY_CODE_OK : TRIBUTARY_CODE_FAILED, TRIBUTARY_CODE_OK, "");
    expect("model", tributary_model(participant, "ready", &model), TRIBUTARY_CODE_OK, "");
    expect("close", tributary_close(participant, 10000), TRIBUTARY_CODE_OK, "");
    print(use(model, features));
    return 0;
}
