package org.tributary.example

import android.content.Context
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import org.tributary.android.AndroidKeyStore
import java.io.File

/**
 * Whose participant this is. `assets/server.txt`, `ca.pem` and `token.txt` say so (README.md); a real app gets the token from its own server,
 * one for each device.
 */
object Federation {
    const val TASK = "blobs"

    fun options(context: Context): JsonObject = buildJsonObject {
        fun asset(name: String) = context.assets.open(name).bufferedReader().use { it.readText().trim() }
        put("server", asset("server.txt"))
        put("ca_pem", asset("ca.pem"))
        put("token", asset("token.txt"))
        put("task", TASK)
        put("journal", File(context.noBackupFilesDir, "journal").path)
    }

    fun keys(context: Context) = AndroidKeyStore(context, TASK)
}
