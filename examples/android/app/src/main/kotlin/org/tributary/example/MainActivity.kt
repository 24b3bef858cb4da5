package org.tributary.example

import android.app.Activity
import android.os.Bundle
import android.widget.TextView
import org.tributary.android.TrainingWorker

/** Has the training run every six hours while the device charges, is idle and is on an unmetered network. */
class MainActivity : Activity() {
    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        TrainingWorker.schedule<BlobsWorker>(this, "tributary")
        setContentView(TextView(this).apply { text = "Training runs while the phone charges and nobody uses it." })
    }
}
