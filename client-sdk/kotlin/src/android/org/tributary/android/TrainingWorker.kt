package org.tributary.android

import android.content.Context
import androidx.work.Constraints
import androidx.work.CoroutineWorker
import androidx.work.ExistingPeriodicWorkPolicy
import androidx.work.NetworkType
import androidx.work.PeriodicWorkRequest
import androidx.work.PeriodicWorkRequestBuilder
import androidx.work.WorkManager
import androidx.work.WorkerParameters
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.launch
import kotlinx.coroutines.withTimeoutOrNull
import org.tributary.Job
import org.tributary.Participant
import org.tributary.ffi.TributaryException
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit
import kotlin.time.Duration
import kotlin.time.Duration.Companion.minutes
import kotlin.time.Duration.Companion.seconds

/**
 * Takes part for a while, whenever the system has time for it. An app extends it, starts a participant in [participant] and trains
 * in [train], and calls [schedule] once.
 *
 * The system may stop the worker or kill the process at any instant. A worker that is stopped leaves its participant paused, for the next run in
 * this process; after a kill the journal knows how to go on.
 */
public abstract class TrainingWorker(context: Context, parameters: WorkerParameters) : CoroutineWorker(context, parameters) {
    /** Starts a participant, with [AndroidKeyStore] and [AndroidConditions]. */
    protected abstract suspend fun participant(): Participant

    /**
     * Trains and answers the job. Between batches it looks at [Job.isOverdue], and at [Job.shouldPause], which also becomes true when the system
     * stops the worker or the [limit] is reached: then it saves a checkpoint and returns without an answer. The job comes again in the next run
     * while its round waits, also if the process was killed meanwhile; the round of a training that returns without a checkpoint is given up.
     */
    protected abstract suspend fun train(job: Job)

    /** How long one run may take; the system ends it after ten minutes. */
    protected open val limit: Duration = 9.minutes

    final override suspend fun doWork(): Result {
        val participant = try {
            resumed() ?: participant().also { running[javaClass] = it }
        } catch (_: TributaryException.Journal) {
            // Such as another run that has not ended yet: it is tried again later.
            return Result.retry()
        }
        // A participant that is closed gives up the round of an unfinished training; one that is paused does not.
        var rests = false
        return try {
            val isOver = withTimeoutOrNull(limit) {
                // A training does not suspend; this tells it from another thread. It is started at once, so that it cannot be cancelled before.
                val end = launch(start = CoroutineStart.UNDISPATCHED) { pauseAtEnd(participant) }
                participant.jobs().collect { job -> job.use { train(it) } }
                end.cancel()
                true
            }
            rests = isOver == null
            Result.success()
        } catch (error: CancellationException) {
            rests = true
            throw error
        } catch (_: TributaryException) {
            Result.retry()
        } finally {
            if (!rests) {
                running.remove(javaClass)
                participant.close(10.seconds)
            }
        }
    }

    /** The participant of an earlier run, unless the app has closed it. */
    private fun resumed(): Participant? = try {
        running[javaClass]?.apply { resume() }
    } catch (_: TributaryException.Closed) {
        running.remove(javaClass)
        null
    }

    private suspend fun pauseAtEnd(participant: Participant): Unit = try {
        awaitCancellation()
    } finally {
        participant.pause()
    }

    public companion object {
        private val running = ConcurrentHashMap<Class<*>, Participant>()

        /** The worker's participant in this process, if it takes part or rests: it has the journal for itself, and is asked for models. */
        public fun running(worker: Class<out TrainingWorker>): Participant? = running[worker]

        /** Has the worker run every [hours] hours while the device charges, is idle, and is on an unmetered network. */
        public inline fun <reified W : TrainingWorker> schedule(context: Context, name: String, hours: Long = 6) {
            WorkManager.getInstance(context).enqueueUniquePeriodicWork(name, ExistingPeriodicWorkPolicy.KEEP, request<W>(hours))
        }

        @PublishedApi
        internal inline fun <reified W : TrainingWorker> request(hours: Long): PeriodicWorkRequest {
            val constraints = Constraints.Builder()
                .setRequiresCharging(true)
                .setRequiresDeviceIdle(true)
                .setRequiredNetworkType(NetworkType.UNMETERED)
                .build()
            return PeriodicWorkRequestBuilder<W>(hours, TimeUnit.HOURS).setConstraints(constraints).build()
        }
    }
}
