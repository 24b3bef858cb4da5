// Tributary for C: take part in federated learning.
//
// Made from client-sdk/ffi/src/c by its test; do not edit.
//
// - Every call returns a TributaryCode. 0 to 2 are no errors; after others tributary_last_error has the reason in words,
//   for the thread that called.
// - Handles are numbers. Any thread may use any handle. A handle that was closed, answered, freed or made up is refused
//   with TRIBUTARY_CODE_CLOSED.
// - Texts are UTF-8 and end with NUL. What a caller passes is not needed any more once the call has returned, but for the
//   functions and the context of TributaryCallbacks. What a call gives belongs to the caller if it is copied into a buffer, and to
//   the job if it is a pointer.
// - A process that forks makes its participants after the fork.


#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>


// What a call returns. 0 to 2 are no errors; for others `tributary_last_error` has the reason in words, but for TOO_SMALL and
// TIMEOUT, which say it all.
typedef enum TributaryCode {
  // Done.
  TRIBUTARY_CODE_OK = 0,
  // There is nothing to give: no job yet, no such tensor, no id yet.
  TRIBUTARY_CODE_NOTHING = 1,
  // The participant has ended: its task is over, or it was told to stop.
  TRIBUTARY_CODE_ENDED = 2,
  // An argument is NULL, not aligned, not UTF-8 or out of its range. The call did nothing.
  TRIBUTARY_CODE_ARGUMENT = 16,
  // A buffer is too small; the length that was given back says what it needs, with the final NUL.
  TRIBUTARY_CODE_TOO_SMALL = 17,
  // A setting is missing or cannot be used.
  TRIBUTARY_CODE_CONFIGURATION = 18,
  // The participant is not enrolled, was revoked, or has expired: it needs a token.
  TRIBUTARY_CODE_ENROLLMENT = 19,
  // The journal cannot be used: the text says what to do.
  TRIBUTARY_CODE_JOURNAL = 20,
  // The update does not fit the model. Nothing was sent, and the job still takes an answer.
  TRIBUTARY_CODE_UPDATE = 21,
  // The round no longer waits for the job; ask for the next one.
  TRIBUTARY_CODE_OVERDUE = 22,
  // The job was answered before.
  TRIBUTARY_CODE_ANSWERED = 23,
  // There is no such handle: it was closed, answered or freed, or never was one.
  TRIBUTARY_CODE_CLOSED = 24,
  // The participant belongs to the process that made it: make it after the fork.
  TRIBUTARY_CODE_OTHER_PROCESS = 25,
  // The call waits, and was made from within a callback: make it from another thread.
  TRIBUTARY_CODE_IN_CALLBACK = 26,
  // The time was up before the participant had ended.
  TRIBUTARY_CODE_TIMEOUT = 27,
  // Anything else, such as what a coordinator refuses for good.
  TRIBUTARY_CODE_FAILED = 28,
  // A defect of the library, which was contained. Please report it.
  TRIBUTARY_CODE_DEFECT = 29,
} TributaryCode;

// What an app does when it is asked; each may be NULL, and then is left out.
//
// **Callbacks may come from any thread**, also two different ones at the same time; events and questions come one after the
// other, and so do calls of the key store. They must return at once, must not throw, and must not call what waits
// (`TRIBUTARY_CODE_IN_CALLBACK`). None is called any more after `tributary_close` has returned TRIBUTARY_CODE_OK. Until then
// `context` and the functions must stay; the structure itself may go as soon as `tributary_start` has returned.
typedef struct TributaryCallbacks {
  // Handed to every callback as it is.
  void *context;
  // Tells of an event: its name in snake case, and its fields as a JSON object. Both texts are gone when it returns.
  void (*on_event)(void *context, const char *name, const char *fields);
  // Whether the device may work now: not 0 if so. While it may not, it is asked again every minute, and at once after
  // `tributary_conditions_changed`.
  int (*is_ready)(void *context);
  // Reads a secret of the journal from the device's key store into a buffer of `size` bytes, and returns its length; 0 if
  // none was ever saved under the name, and -1 if it cannot be read. Needs `save_secret`; without both the secrets are in
  // files beside the journal.
  ptrdiff_t (*load_secret)(void *context, const char *name, uint8_t *buffer, size_t size);
  // Replaces a secret, and returns 0 once it survives a crash; anything else if it cannot.
  int (*save_secret)(void *context, const char *name, const uint8_t *bytes, size_t count);
} TributaryCallbacks;

// A participant: a number, to be copied freely. Any thread may use it. It stands for the participant from
// `tributary_start` until `tributary_close`; afterwards, and where it is made up, calls return `TRIBUTARY_CODE_CLOSED`.
typedef struct TributaryParticipant {
  // 0 is no participant.
  uint64_t id;
} TributaryParticipant;

// One model to train: a number, to be copied freely. Any thread may use it. It stands for the job until that is answered
// (`tributary_job_finish`, `_fail`, `_refuse`) or freed (`tributary_job_free`); afterwards calls return
// `TRIBUTARY_CODE_CLOSED`, and **every pointer that was given for the job is gone**.
typedef struct TributaryJob {
  // 0 is no job.
  uint64_t id;
} TributaryJob;

// The numbers of a job that most training functions need; `tributary_job_description` has all of the plan.
typedef struct TributaryPlan {
  // Of the task, from 1.
  uint32_t round;
  // Passes over the local data; not counted if `steps` is above 0.
  uint32_t epochs;
  // Number of steps; 0 if `epochs` says how many.
  uint32_t steps;
  // Examples in a mini-batch.
  uint32_t batch_size;
  // Of the local optimizer.
  double learning_rate;
  // Of the local optimizer, from 0 to below 1.
  double momentum;
  // L2 penalty.
  double weight_decay;
  // For shuffling and the like: repeatable if the participant has a seed, otherwise random.
  uint64_t seed;
} TributaryPlan;

// A tensor of the model. The pointers belong to the job.
typedef struct TributaryTensor {
  // Unique within the model.
  const char *name;
  // Dimensions, outermost first.
  const uint64_t *shape;
  // Number of dimensions; 0 for a scalar.
  size_t dimensions;
  // Index of its first element in the flat vector of parameters (row-major).
  size_t offset;
  // Number of its elements.
  size_t count;
} TributaryTensor;

// A metric of the training.
typedef struct TributaryMetric {
  // One of the task's metrics; others are dropped.
  const char *name;
  // The mean over the examples; finite.
  double value;
  // Number of examples measured.
  uint64_t count;
} TributaryMetric;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as text. Belongs to the library, for ever.
const char *tributary_version(void);

// Copies the reason for the last error of a call on this thread into `buffer`; an empty text if there was none.
// `length`, unless NULL, gets the size that the text needs with its NUL; `TRIBUTARY_CODE_TOO_SMALL` if the buffer has less.
enum TributaryCode tributary_last_error(char *buffer,
                                        size_t size,
                                        size_t *length);

// Starts a participant on a thread of its own, and puts its handle into `participant`.
//
// `options` is a JSON object in UTF-8: `server`, `journal`, `ca_pem`, at first `token`, and all else in the documentation of
// `client_sdk::runner::Options`. It is not needed any more when the call returns. `callbacks` may be NULL; see `TributaryCallbacks` for how
// long what it points to must stay. Close what was started with `tributary_close`.
//
// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL.
enum TributaryCode tributary_start(const char *options,
                                   const struct TributaryCallbacks *callbacks,
                                   struct TributaryParticipant *participant);

// Waits for the next job for at most `limit_ms` milliseconds, and puts its handle into `job`. Threads may ask at the same time;
// each job goes to one of them.
//
// Returns OK; NOTHING if there is none yet: ask again; ENDED once the participant has ended, and then always. Errors: why it
// ended early (ENROLLMENT, JOURNAL, FAILED), CLOSED (also if it is closed meanwhile), IN_CALLBACK.
enum TributaryCode tributary_next(struct TributaryParticipant participant,
                                  uint64_t limit_ms,
                                  struct TributaryJob *job);

// Rests at once: gives up a round whose update is not made, and sends nothing until `tributary_resume`. Does not wait.
enum TributaryCode tributary_pause(struct TributaryParticipant participant);

// Ends a pause. Does not wait.
enum TributaryCode tributary_resume(struct TributaryParticipant participant);

// Has the participant ask `is_ready` now. Does not wait.
enum TributaryCode tributary_conditions_changed(struct TributaryParticipant participant);

// Sets the number of training examples that the coordinator is told of; `tributary_job_finish` sets it, too. Does not wait.
enum TributaryCode tributary_set_examples(struct TributaryParticipant participant,
                                          uint64_t examples);

// Copies the participant's id into `buffer`, as `tributary_last_error` does with its text. NOTHING before it is enrolled.
enum TributaryCode tributary_id(struct TributaryParticipant participant,
                                char *buffer,
                                size_t size,
                                size_t *length);

// Copies what was spent on each private task, from the participant's own ledger, into `buffer` as a JSON array, as
// `tributary_last_error` does with its text.
enum TributaryCode tributary_privacy_spent(struct TributaryParticipant participant,
                                           char *buffer,
                                           size_t size,
                                           size_t *length);

// Copies what was spent on all tasks together, and the limit on it, into `buffer` as a JSON object, as
// `tributary_last_error` does with its text.
enum TributaryCode tributary_privacy_lifetime(struct TributaryParticipant participant,
                                              char *buffer,
                                              size_t size,
                                              size_t *length);

// Asks the participant to stop, and returns at once; `tributary_next` says when it has.
enum TributaryCode tributary_stop(struct TributaryParticipant participant);

// Stops the participant, waits for its end for at most `limit_ms` milliseconds, and forgets the handle; a few seconds are
// enough while a request is under way. Jobs that were handed out are overdue afterwards, and still have to be freed.
//
// After OK no callback is called any more. After TIMEOUT a callback does not return: its thread is left behind, and what
// `TributaryCallbacks` points to must stay. Errors: CLOSED, IN_CALLBACK.
enum TributaryCode tributary_close(struct TributaryParticipant participant,
                                   uint64_t limit_ms);

// Puts the numbers of the job into `plan`.
enum TributaryCode tributary_job_plan(struct TributaryJob job, struct TributaryPlan *plan);

// Points `json` to the job as a JSON object: `task`, `round`, `seed`, `plan`, `architecture`, `metrics`, and `tensors` with name
// and shape. The text belongs to the job.
enum TributaryCode tributary_job_description(struct TributaryJob job,
                                             const char **json);

// Puts the tensor of this number, from 0 and in the order of the parameters, into `tensor`; NOTHING beyond the last.
enum TributaryCode tributary_job_tensor(struct TributaryJob job,
                                        size_t number,
                                        struct TributaryTensor *tensor);

// Points `values` to the parameters of the model, `count` floats, which may be trained in place. They belong to the job, which
// neither reads nor writes them before it is answered; threads of the app that do both at the same time must agree among
// themselves.
enum TributaryCode tributary_job_parameters(struct TributaryJob job,
                                            float **values,
                                            size_t *count);

// OVERDUE if the round no longer waits for the job: training may stop. OK otherwise. Cheap: call it between batches.
enum TributaryCode tributary_job_check(struct TributaryJob job);

// Hands in the trained model, of at least one example, and ends the job. What leaves the device is clipped, weighted,
// noised and masked as the task prescribes.
//
// `values` are `count` floats in the order of the parameters, which are copied; NULL and 0, or the job's own pointer, if they
// were trained in place. `metrics` may be NULL if `metric_count` is 0.
//
// Errors: UPDATE (of another length, not finite, no examples) and ARGUMENT, after which **the job is still open**;
// OVERDUE, after which it has ended; CLOSED.
enum TributaryCode tributary_job_finish(struct TributaryJob job,
                                        const float *values,
                                        size_t count,
                                        uint64_t examples,
                                        const struct TributaryMetric *metrics,
                                        size_t metric_count);

// Trains the task's ready model (`model.architecture`) as the plan says, hands in the result and ends the job: for apps without
// a training function. `features` are `rows` rows of `width` numbers, `labels` the class of each row. Waits until it is trained.
//
// Errors: UPDATE (the examples do not fit the model, or the task names no ready model; a library that was built without
// the ready models always says so) and ARGUMENT, after which **the job is still open**; OVERDUE, after which it has ended; CLOSED.
enum TributaryCode tributary_job_train(struct TributaryJob job,
                                       const float *features,
                                       const uint32_t *labels,
                                       size_t rows,
                                       size_t width);

// Says that training failed, and ends the job. `reason` stays on the device.
enum TributaryCode tributary_job_fail(struct TributaryJob job, const char *reason);

// Says that this app does not do such jobs, and ends the job. `reason` stays on the device.
enum TributaryCode tributary_job_refuse(struct TributaryJob job, const char *reason);

// Ends a job without an answer, which then counts as failed.
enum TributaryCode tributary_job_free(struct TributaryJob job);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus
