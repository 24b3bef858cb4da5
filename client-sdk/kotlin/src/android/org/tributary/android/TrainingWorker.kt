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
import kotlinx.coroutines.withTimeoutOrNull
import org.tributary.Job
import org.tributary.Participant
import org.tributary.ffi.TributaryException
import java.util.concurrent.TimeUnit
import kotlin.time.Duration
import kotlin.time.Duration.Companion.minutes
import kotlin.time.Duration.Companion.seconds

/**
 * Takes part for a while, whenever the system has time for it. An app extends it, starts a participant in [participant] and trains
 * in [train], and calls [schedule] once.
 *
 * The system may stop the worker or kill the process at any instant: the journal knows how to go on.
 */
public abstract class TrainingWorker(context: Context, parameters: WorkerParameters) : CoroutineWorker(context, parameters) {
    /** Starts a participant, with [AndroidKeyStore] and [AndroidConditions]. */
    protected abstract suspend fun participant(): Participant

    /** Trains and answers the job; looks at [Job.isOverdue] and at [isStopped] between batches. */
    protected abstract suspend fun train(job: Job)

    /** How long one run may take; the system ends it after ten minutes. */
    protected open val limit: Duration = 9.minutes

    final override suspend fun doWork(): Result {
        val participant = try {
            participant()
        } catch (_: TributaryException.Journal) {
            // Such as another run that has not ended yet: it is tried again later.
            return Result.retry()
        }
        return try {
            withTimeoutOrNull(limit) { participant.jobs().collect { job -> job.use { train(it) } } }
            Result.success()
        } catch (error: CancellationException) {
            throw error
        } catch (_: TributaryException) {
            Result.retry()
        } finally {
            participant.close(10.seconds)
        }
    }

    public companion object {
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
