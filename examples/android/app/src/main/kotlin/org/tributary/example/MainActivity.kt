package org.tributary.example

import android.app.Activity
import android.content.Context
import android.os.Bundle
import android.widget.TextView
import kotlinx.coroutines.runBlocking
import org.tributary.Model
import org.tributary.android.TrainingWorker
import org.tributary.ffi.TributaryException
import java.io.FileNotFoundException
import kotlin.concurrent.thread

/** Has the training run every six hours while the device charges, is idle and is on an unmetered network; and uses the model. */
class MainActivity : Activity() {
    private lateinit var view: TextView

    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        TrainingWorker.schedule<BlobsWorker>(this, "tributary")
        view = TextView(this)
        setContentView(view)
    }

    override fun onResume() {
        super.onResume()
        val context = applicationContext
        // The journal is read from the disk.
        thread {
            val text = "Training runs while the phone charges and nobody uses it.\n\n" + runBlocking { used(context) }
            runOnUiThread { view.text = text }
        }
    }
}

/** What the model is good for on this device: from the journal, so also without a network, and from whoever has the journal open. */
private suspend fun used(context: Context): String = try {
    val running = TrainingWorker.running(BlobsWorker::class.java)
    val model = when (running) {
        null -> Model.load(Federation.options(context), Federation.TASK, Federation.keys(context))
        else -> running.model(Federation.TASK)
    }
    model?.use {
        val right = 100 * Blobs(seed = 1).accuracy(it.parameters())
        "Version ${it.version} gets ${right.toInt()} % of my examples right."
    } ?: "There is no model yet."
} catch (error: FileNotFoundException) {
    "An asset is missing: ${error.message} (README.md says which there must be)."
} catch (error: TributaryException) {
    // Such as when the worker begins or ends at this moment.
    "The model cannot be read now: ${error.message}"
}
