package org.tributary.example

import android.content.Context
import androidx.work.WorkerParameters
import org.tributary.Job
import org.tributary.Participant
import org.tributary.android.AndroidConditions
import org.tributary.android.TrainingWorker

/** Trains the task of `examples/c/task.toml` on data that only this device has. */
class BlobsWorker(context: Context, parameters: WorkerParameters) : TrainingWorker(context, parameters) {
    private val blobs = Blobs(seed = 1)

    override suspend fun participant(): Participant = Participant.start(
        Federation.options(applicationContext),
        AndroidConditions(applicationContext),
        Federation.keys(applicationContext),
    )

    override suspend fun train(job: Job) {
        val plan = job.plan
        if (!plan.isPlainSgd || plan.steps != null) return job.refuse("this app trains by plain gradient descent alone")
        // A job that was paused comes again, with the model as it was received; what was trained is in the checkpoint.
        val received = job.parameters()
        val accuracy = blobs.accuracy(received)
        val begun = job.checkpoint()?.let(State::of) ?: State(0, received)
        val parameters = begun.parameters
        for (epoch in begun.epochs until plan.epochs) {
            if (job.isOverdue) return
            val shouldPause = job.shouldPause
            if (shouldPause || job.isCheckpointDue) job.saveCheckpoint(State(epoch, parameters).toBytes())
            if (shouldPause) return
            blobs.trainEpoch(parameters, plan.batchSize, plan.learningRate)
        }
        job.finish(parameters, blobs.size.toLong(), mapOf("accuracy" to accuracy))
    }
}
