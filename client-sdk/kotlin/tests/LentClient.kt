package org.tributary.tests

import org.tributary.ffi.Exchange
import org.tributary.ffi.HttpClient
import org.tributary.ffi.HttpHeader
import org.tributary.ffi.HttpRequest
import java.io.IOException
import java.io.InputStream
import java.net.URI
import java.net.http.HttpResponse
import java.security.KeyFactory
import java.security.KeyStore
import java.security.cert.Certificate
import java.security.cert.CertificateFactory
import java.security.spec.PKCS8EncodedKeySpec
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors
import javax.net.ssl.KeyManagerFactory
import javax.net.ssl.SSLContext
import javax.net.ssl.SSLParameters
import javax.net.ssl.TrustManagerFactory
import java.net.http.HttpClient as JavaClient
import java.net.http.HttpRequest as JavaRequest

/** The JVM's client, as an app lends it: over TLS 1.3, to a server that the authority in [caPem] vouches for, without redirects. */
class LentClient(private val server: String, caPem: String) : HttpClient {
    private val authorities: KeyStore = emptyStore().apply {
        certificates(caPem).forEachIndexed { index, certificate -> setCertificateEntry("authority-$index", certificate) }
    }

    /** Answers are read here: a large one waits until there is room. */
    private val threads: ExecutorService = Executors.newCachedThreadPool { Thread(it).apply { isDaemon = true } }

    @Volatile
    private var client: JavaClient = showing(null)

    override fun begin(request: HttpRequest, exchange: Exchange) {
        val body = when {
            request.body.isEmpty() -> JavaRequest.BodyPublishers.noBody()
            else -> JavaRequest.BodyPublishers.ofByteArray(request.body)
        }
        val sent = JavaRequest.newBuilder(URI.create(server + request.path)).method(request.method, body)
        request.headers.forEach { sent.header(it.name, it.value) }
        client.sendAsync(sent.build(), HttpResponse.BodyHandlers.ofInputStream()).whenCompleteAsync(
            { answer: HttpResponse<InputStream>?, error: Throwable? -> exchange.use { passOn(answer, error, it) } },
            threads,
        )
    }

    /** The key is in this object alone; its copy in bytes is erased. */
    override fun identify(certificatePem: String, keyPkcs8: ByteArray) {
        val key = KeyFactory.getInstance("Ed25519").generatePrivate(PKCS8EncodedKeySpec(keyPkcs8))
        keyPkcs8.fill(0)
        val chain = certificates(certificatePem).toTypedArray()
        client = showing(emptyStore().apply { setKeyEntry("participant", key, CharArray(0), chain) })
    }

    private fun showing(identity: KeyStore?): JavaClient {
        val keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm())
        if (identity != null) keys.init(identity, CharArray(0))
        val trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm())
        trusted.init(authorities)
        val tls = SSLContext.getInstance("TLSv1.3")
        tls.init(if (identity == null) null else keys.keyManagers, trusted.trustManagers, null)
        return JavaClient.newBuilder()
            .sslContext(tls)
            .sslParameters(SSLParameters(null, arrayOf("TLSv1.3")))
            .followRedirects(JavaClient.Redirect.NEVER)
            .build()
    }
}

private fun emptyStore(): KeyStore {
    val store = KeyStore.getInstance(KeyStore.getDefaultType())
    store.load(null, null)
    return store
}

private fun certificates(pem: String): List<Certificate> =
    CertificateFactory.getInstance("X.509").generateCertificates(pem.byteInputStream()).toList()

private fun passOn(answer: HttpResponse<InputStream>?, error: Throwable?, exchange: Exchange) {
    if (answer == null) return exchange.fail("$error")
    try {
        answer.body().use { body ->
            // Of HTTP/2 this client tells the status among the headers, too, as `:status`, which is the name of no header.
            val headers = answer.headers().map().filterKeys { !it.startsWith(":") }
            val listed = headers.flatMap { (name, values) -> values.map { HttpHeader(name, it) } }
            if (!exchange.head(answer.statusCode().toUShort(), listed)) return
            val piece = ByteArray(64 shl 10)
            var count = body.read(piece)
            while (count >= 0) {
                if (!exchange.piece(piece.copyOf(count))) return
                count = body.read(piece)
            }
        }
        exchange.end()
    } catch (cut: IOException) {
        exchange.fail("$cut")
    }
}
