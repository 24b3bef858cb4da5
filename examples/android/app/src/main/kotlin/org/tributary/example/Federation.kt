package org.tributary.example

import android.content.Context
import org.tributary.ParticipantOptions
import org.tributary.android.AndroidKeyStore
import java.io.File

/**
 * Whose participant this is. `assets/server.txt`, `ca.pem` and `token.txt` say so (README.md); a real app gets the token from its own server,
 * one for each device.
 */
object Federation {
    const val TASK = "blobs"

    fun options(context: Context): ParticipantOptions {
        fun asset(name: String) = context.assets.open(name).bufferedReader().use { it.readText().trim() }
        return ParticipantOptions(
            server = asset("server.txt"),
            journal = File(context.noBackupFilesDir, "journal"),
            caPem = asset("ca.pem"),
            token = asset("token.txt"),
            task = TASK,
        )
    }

    fun keys(context: Context) = AndroidKeyStore(context, TASK)
}
