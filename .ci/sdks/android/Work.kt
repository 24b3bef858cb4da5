// What of androidx.work the Kotlin package uses, as its documentation declares it: only the types count, and nothing of it runs. The library
// itself comes from Google's Maven repository alone.
@file:Suppress("UNUSED_PARAMETER", "unused")

package androidx.work

import android.content.Context
import java.util.concurrent.TimeUnit

class WorkerParameters private constructor()

abstract class ListenableWorker(val applicationContext: Context, parameters: WorkerParameters) {
    abstract class Result {
        companion object {
            @JvmStatic
            fun success(): Result = TODO()

            @JvmStatic
            fun retry(): Result = TODO()
        }
    }
}

abstract class CoroutineWorker(context: Context, parameters: WorkerParameters) : ListenableWorker(context, parameters) {
    abstract suspend fun doWork(): Result
}

enum class NetworkType { UNMETERED }

enum class ExistingPeriodicWorkPolicy { KEEP }

class Constraints private constructor() {
    class Builder {
        fun setRequiresCharging(charging: Boolean): Builder = TODO()

        fun setRequiresDeviceIdle(idle: Boolean): Builder = TODO()

        fun setRequiredNetworkType(type: NetworkType): Builder = TODO()

        fun build(): Constraints = TODO()
    }
}

class PeriodicWorkRequest private constructor() {
    class Builder(worker: Class<out ListenableWorker>, every: Long, unit: TimeUnit) {
        fun setConstraints(constraints: Constraints): Builder = TODO()

        fun build(): PeriodicWorkRequest = TODO()
    }
}

inline fun <reified W : ListenableWorker> PeriodicWorkRequestBuilder(every: Long, unit: TimeUnit): PeriodicWorkRequest.Builder =
    PeriodicWorkRequest.Builder(W::class.java, every, unit)

abstract class WorkManager private constructor() {
    abstract fun enqueueUniquePeriodicWork(name: String, policy: ExistingPeriodicWorkPolicy, request: PeriodicWorkRequest)

    companion object {
        fun getInstance(context: Context): WorkManager = TODO()
    }
}
