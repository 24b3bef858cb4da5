package org.tributary.example

import android.content.Context
import androidx.work.WorkerParameters
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import org.tributary.Job
import org.tributary.Participant
import org.tributary.android.AndroidConditions
import org.tributary.android.AndroidKeyStore
import org.tributary.android.TrainingWorker
import java.io.File

/**
 * Trains the task of `examples/c/task.toml` on data that only this device has. `assets/server.txt`, `ca.pem` and `token.txt` say whose
 * participant it is; a real app gets the token from its own server, one for each device.
 */
class BlobsWorker(context: Context, parameters: WorkerParameters) : TrainingWorker(context, parameters) {
    private val blobs = Blobs(seed = 1)

    override suspend fun participant(): Participant {
        val options = buildJsonObject {
            put("server", asset("server.txt"))
            put("ca_pem", asset("ca.pem"))
            put("token", asset("token.txt"))
            put("task", "blobs")
            put("journal", File(applicationContext.noBackupFilesDir, "journal").path)
        }
        return Participant.start(options, AndroidConditions(applicationContext), AndroidKeyStore(applicationContext, "blobs"))
    }

    override suspend fun train(job: Job) {
        if (!job.plan.isPlainSgd || job.plan.steps != null) return job.refuse("this app trains by plain gradient descent alone")
        val parameters = job.parameters()
        val accuracy = blobs.accuracy(parameters)
        repeat(job.plan.epochs) {
            if (isStopped || job.isOverdue) return job.fail("there is no more time")
            blobs.trainEpoch(parameters, job.plan.learningRate)
        }
        job.finish(parameters, blobs.size.toLong(), mapOf("accuracy" to accuracy))
    }

    private fun asset(name: String) = applicationContext.assets.open(name).bufferedReader().readText().trim()
}
