package org.tributary.android

import android.content.Context
import android.security.keystore.KeyGenParameterSpec
import android.security.keystore.KeyProperties
import android.system.Os
import android.system.OsConstants
import org.tributary.ffi.CallbackException
import org.tributary.ffi.KeyStore
import java.io.File
import java.io.FileNotFoundException
import java.io.FileOutputStream
import java.security.GeneralSecurityException
import java.security.KeyStore as Keys
import javax.crypto.Cipher
import javax.crypto.KeyGenerator
import javax.crypto.SecretKey
import javax.crypto.spec.GCMParameterSpec

/**
 * The secrets of one journal, sealed with AES-256-GCM by a key that never leaves Android's Keystore.
 *
 * The sealed secrets are in [Context.getNoBackupFilesDir], which no backup takes along: a journal that is restored from a copy must
 * not open. [journal] names the journal among those of the app.
 */
public class AndroidKeyStore(context: Context, private val journal: String) : KeyStore {
    private val folder = File(context.noBackupFilesDir, "tributary").apply { mkdirs() }

    override fun load(name: String): ByteArray? = guarded(name) {
        val bytes = try {
            file(name).readBytes()
        } catch (error: FileNotFoundException) {
            // A file that is there and cannot be opened is not one that was never saved.
            if (file(name).exists()) throw error
            return@guarded null
        }
        val cipher = Cipher.getInstance(TRANSFORMATION)
        cipher.init(Cipher.DECRYPT_MODE, key(), GCMParameterSpec(TAG_BITS, bytes, 0, NONCE_BYTES))
        cipher.updateAAD(name.toByteArray())
        cipher.doFinal(bytes, NONCE_BYTES, bytes.size - NONCE_BYTES)
    }

    override fun save(name: String, secret: ByteArray): Unit = guarded(name) {
        val cipher = Cipher.getInstance(TRANSFORMATION)
        cipher.init(Cipher.ENCRYPT_MODE, key())
        cipher.updateAAD(name.toByteArray())
        val sealed = cipher.iv + cipher.doFinal(secret)
        // Replaces the file as a whole once the new one is on the disk. Unlike AtomicFile, which only logs that it could not, this throws;
        // and the folder is written out, too, so that the new name survives a crash.
        val draft = File(folder, "$journal.$name.draft")
        FileOutputStream(draft).use { stream ->
            stream.write(sealed)
            stream.fd.sync()
        }
        Os.rename(draft.path, file(name).path)
        val opened = Os.open(folder.path, OsConstants.O_RDONLY, 0)
        try {
            Os.fsync(opened)
        } finally {
            Os.close(opened)
        }
    }

    private fun file(name: String) = File(folder, "$journal.$name")

    private fun key(): SecretKey {
        val alias = "tributary.$journal"
        val keys = Keys.getInstance(PROVIDER).apply { load(null) }
        (keys.getKey(alias, null) as SecretKey?)?.let { return it }
        if (file(KEY_NAME).exists()) throw GeneralSecurityException("the Keystore has lost the key $alias")
        val spec = KeyGenParameterSpec.Builder(alias, KeyProperties.PURPOSE_ENCRYPT or KeyProperties.PURPOSE_DECRYPT)
            .setBlockModes(KeyProperties.BLOCK_MODE_GCM)
            .setEncryptionPaddings(KeyProperties.ENCRYPTION_PADDING_NONE)
            .setKeySize(256)
            .build()
        return KeyGenerator.getInstance(KeyProperties.KEY_ALGORITHM_AES, PROVIDER).apply { init(spec) }.generateKey()
    }

    private inline fun <T> guarded(name: String, work: () -> T): T = try {
        work()
    } catch (error: Exception) {
        throw CallbackException.Failed("$name: $error")
    }

    private companion object {
        const val PROVIDER = "AndroidKeyStore"
        const val TRANSFORMATION = "AES/GCM/NoPadding"
        const val KEY_NAME = "journal-key"
        const val TAG_BITS = 128
        const val NONCE_BYTES = 12
    }
}
