// A participant in C with a training function of its own: softmax regression on its own examples.
//
//     train OPTIONS.json SEED
//
// OPTIONS.json has the server, the authority's certificate, the token and the journal (see README.md); SEED stands for the data
// that only this device has. It takes part until its task is over, and prints what it was given and what it learnt.

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tributary.h"

enum { FEATURES = 8, CLASSES = 3, EXAMPLES = 200 };

// ---- this device's data

typedef struct {
    float features[EXAMPLES][FEATURES];
    int labels[EXAMPLES];
} Data;

static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static void make_data(Data *data, uint64_t seed) {
    uint64_t state = seed * 2 + 1;
    for (int example = 0; example < EXAMPLES; ++example) {
        int label = data->labels[example] = (int)(uniform(&state) * CLASSES);
        for (int feature = 0; feature < FEATURES; ++feature) {
            double noise = uniform(&state) + uniform(&state) + uniform(&state) - 1.5;
            data->features[example][feature] = (float)(noise + (feature % CLASSES == label ? 0.8 : 0.0));
        }
    }
}

// ---- the model: a weight for each class and feature, a bias for each class

static void probabilities(const float *weight, const float *bias, const float *features, double *all) {
    double highest = -INFINITY, sum = 0;
    for (int class = 0; class < CLASSES; ++class) {
        all[class] = bias[class];
        for (int feature = 0; feature < FEATURES; ++feature) {
            all[class] += weight[class * FEATURES + feature] * features[feature];
        }
        highest = fmax(highest, all[class]);
    }
    for (int class = 0; class < CLASSES; ++class) {
        sum += all[class] = exp(all[class] - highest);
    }
    for (int class = 0; class < CLASSES; ++class) {
        all[class] /= sum;
    }
}

static double accuracy(const float *weight, const float *bias, const Data *data) {
    int right = 0;
    for (int example = 0; example < EXAMPLES; ++example) {
        double all[CLASSES];
        int best = 0;
        probabilities(weight, bias, data->features[example], all);
        for (int class = 1; class < CLASSES; ++class) {
            best = all[class] > all[best] ? class : best;
        }
        right += best == data->labels[example];
    }
    return (double)right / EXAMPLES;
}

// A step of gradient descent by the mean gradient of the examples from `begin` to before `end`.
static void step(float *weight, float *bias, const Data *data, int begin, int end, double learning_rate) {
    double of_weight[CLASSES][FEATURES] = {{0}}, of_bias[CLASSES] = {0}, rate = learning_rate / (end - begin);
    for (int example = begin; example < end; ++example) {
        double all[CLASSES];
        probabilities(weight, bias, data->features[example], all);
        for (int class = 0; class < CLASSES; ++class) {
            double gradient = all[class] - (class == data->labels[example]);
            for (int feature = 0; feature < FEATURES; ++feature) {
                of_weight[class][feature] += gradient * data->features[example][feature];
            }
            of_bias[class] += gradient;
        }
    }
    for (int class = 0; class < CLASSES; ++class) {
        for (int feature = 0; feature < FEATURES; ++feature) {
            weight[class * FEATURES + feature] -= (float)(rate * of_weight[class][feature]);
        }
        bias[class] -= (float)(rate * of_bias[class]);
    }
}

// One pass over the data, in the order in which it is.
static void train_epoch(float *weight, float *bias, const Data *data, const TributaryPlan *plan) {
    int size = plan->batch_size < EXAMPLES ? (int)plan->batch_size : EXAMPLES;
    for (int begin = 0; begin < EXAMPLES; begin += size) {
        step(weight, bias, data, begin, begin + size < EXAMPLES ? begin + size : EXAMPLES, plan->learning_rate);
    }
}

// Whether this is all that the task asks for: epochs of mini-batches, with a step of gradient descent at the same rate after each.
static bool is_plain(const TributaryPlan *plan) {
    return plan->optimizer == TRIBUTARY_OPTIMIZER_SGD && plan->momentum == 0 && plan->weight_decay == 0 && plan->proximal_mu == 0 &&
           plan->gradient_clip == 0 && plan->accumulate == 1 && plan->steps == 0 && plan->rate_changes == 0 && plan->budget_steps == 0 &&
           plan->budget_ms == 0;
}

// ---- taking part

static void complain(const char *what, TributaryCode code) {
    char reason[512];
    tributary_last_error(reason, sizeof reason, NULL);
    fprintf(stderr, "%s: %s (code %d)\n", what, reason, (int)code);
}

// The tensor of this name, if it has so many elements; NULL otherwise.
static float *find(TributaryJob job, float *parameters, const char *name, size_t count) {
    TributaryTensor tensor;
    for (size_t number = 0; tributary_job_tensor(job, number, &tensor) == TRIBUTARY_CODE_OK; ++number) {
        if (strcmp(tensor.name, name) == 0 && tensor.count == count) {
            return parameters + tensor.offset;
        }
    }
    return NULL;
}

static TributaryCode work(TributaryJob job, const Data *data) {
    TributaryPlan plan;
    float *parameters;
    size_t count;
    TributaryCode code = tributary_job_plan(job, &plan);
    if (code != TRIBUTARY_CODE_OK || (code = tributary_job_parameters(job, &parameters, &count)) != TRIBUTARY_CODE_OK) {
        return code;
    }
    if (!is_plain(&plan)) {
        return tributary_job_refuse(job, "this app trains by plain gradient descent alone");
    }
    float *weight = find(job, parameters, "weight", CLASSES * FEATURES), *bias = find(job, parameters, "bias", CLASSES);
    if (weight == NULL || bias == NULL) {
        return tributary_job_refuse(job, "this app has another model");
    }
    TributaryMetric metric = {"accuracy", accuracy(weight, bias, data), EXAMPLES};
    printf("round %" PRIu32 ": the model gets %.1f %% of my examples right\n", plan.round, 100 * metric.value);
    for (uint32_t epoch = 0; epoch < plan.epochs; ++epoch) {
        if (tributary_job_check(job) == TRIBUTARY_CODE_OVERDUE) {
            return tributary_job_fail(job, "the round no longer waits");
        }
        train_epoch(weight, bias, data, &plan);
    }
    // NULL: trained in place. Nothing of the job may be used afterwards.
    return tributary_job_finish(job, NULL, 0, EXAMPLES, &metric, 1);
}

// What the app is for: it uses the model, which the journal keeps, so also without a network.
static void use_model(TributaryParticipant participant, const Data *data) {
    TributaryModel model;
    TributaryCode code = tributary_model(participant, "blobs", &model);
    if (code != TRIBUTARY_CODE_OK) {
        if (code != TRIBUTARY_CODE_NOTHING) {
            complain("the model cannot be used", code);
        }
        return;
    }
    TributaryOrigin origin;
    TributaryTensor tensor;
    const float *values, *weight = NULL, *bias = NULL;
    size_t count;
    if (tributary_model_origin(model, &origin) == TRIBUTARY_CODE_OK && tributary_model_parameters(model, &values, &count) == TRIBUTARY_CODE_OK) {
        for (size_t number = 0; tributary_model_tensor(model, number, &tensor) == TRIBUTARY_CODE_OK; ++number) {
            if (strcmp(tensor.name, "weight") == 0 && tensor.count == CLASSES * FEATURES) {
                weight = values + tensor.offset;
            } else if (strcmp(tensor.name, "bias") == 0 && tensor.count == CLASSES) {
                bias = values + tensor.offset;
            }
        }
        if (weight != NULL && bias != NULL) {
            printf("version %" PRIu32 " gets %.1f %% of my examples right\n", origin.version, 100 * accuracy(weight, bias, data));
        }
    }
    tributary_model_free(model);
}

// From the participant's own thread, while the main thread waits or trains.
static void on_event(void *context, const char *name, const char *fields) {
    (void)context;
    if (getenv("EVENTS") != NULL) {
        printf("%s %s\n", name, fields);
    }
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    if (file == NULL || text == NULL || fread(text, 1, (1 << 16) - 1, file) == 0) {
        free(text);
        text = NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "train OPTIONS.json SEED\n");
        return 2;
    }
    // Whoever reads its output sees each line at once, also in a file.
    setvbuf(stdout, NULL, _IOLBF, 0);
    static Data data;
    make_data(&data, strtoull(arguments[2], NULL, 10));

    char *options = read_text(arguments[1]);
    TributaryCallbacks app = {.on_event = on_event};
    TributaryParticipant participant;
    TributaryCode code = tributary_start(options, &app, &participant);
    free(options);
    if (code != TRIBUTARY_CODE_OK) {
        complain("cannot start", code);
        return 1;
    }
    for (;;) {
        TributaryJob job;
        code = tributary_next(participant, 60000, &job);
        if (code == TRIBUTARY_CODE_OK) {
            code = work(job, &data);
            if (code != TRIBUTARY_CODE_OK && code != TRIBUTARY_CODE_OVERDUE) {
                complain("this job failed", code);
                tributary_job_free(job);
            }
        } else if (code != TRIBUTARY_CODE_NOTHING) {
            break;
        }
    }
    if (code != TRIBUTARY_CODE_ENDED) {
        complain("it ended early", code);
    }
    use_model(participant, &data);
    tributary_close(participant, 10000);
    return code == TRIBUTARY_CODE_ENDED ? 0 : 1;
}
