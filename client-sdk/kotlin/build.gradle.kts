// The Android library: this package, the bindings that uniffi makes, and libtributary_ffi for each architecture.
// Needs the NDK, a Rust toolchain with the targets below, and cargo-ndk (`cargo install cargo-ndk`).

plugins {
    id("com.android.library")
    kotlin("android")
}

val repository = file("../..")
val made = layout.buildDirectory.dir("made")
// Of Android and of Rust.
val architectures = mapOf("arm64-v8a" to "aarch64-linux-android", "x86_64" to "x86_64-linux-android")

android {
    namespace = "org.tributary"
    compileSdk = 35
    defaultConfig {
        minSdk = 26
        consumerProguardFiles("consumer-rules.pro")
    }
    sourceSets["main"].apply {
        kotlin.srcDirs("src/common", "src/android", made.map { it.dir("kotlin") })
        jniLibs.srcDirs(made.map { it.dir("jni") })
    }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }
}

kotlin { jvmToolchain(17) }

dependencies {
    api("org.jetbrains.kotlinx:kotlinx-coroutines-core:1.10.2")
    api("org.jetbrains.kotlinx:kotlinx-serialization-json:1.9.0")
    api("androidx.work:work-runtime-ktx:2.10.0")
    implementation("net.java.dev.jna:jna:5.17.0@aar")
}

val native by tasks.registering(Exec::class) {
    description = "Builds libtributary_ffi for every architecture."
    workingDir = repository
    val output = made.get().dir("jni").asFile
    commandLine(
        listOf("cargo", "ndk", "--platform", "26", "--output-dir", output.path) +
            architectures.keys.flatMap { listOf("--target", it) } +
            listOf("build", "--locked", "--profile", "mobile", "--package", "tributary-ffi"),
    )
}

val described by tasks.registering(Exec::class) {
    description = "Builds the library for this machine, with the descriptions of its functions: the small ones are stripped of them."
    workingDir = repository
    commandLine("cargo", "build", "--locked", "--package", "tributary-ffi")
}

val bindings by tasks.registering(Exec::class) {
    description = "Writes the Kotlin that calls the library."
    dependsOn(native, described)
    workingDir = repository
    val target = System.getenv("CARGO_TARGET_DIR") ?: "target"
    commandLine(
        "cargo", "run", "--locked", "--package", "tributary-bindgen", "--", "generate", "-c", "client-sdk/ffi/bindings.toml",
        "--language", "kotlin", "--no-format", "--out-dir", made.get().dir("kotlin").asFile.path,
        "$target/debug/${System.mapLibraryName("tributary_ffi")}",
    )
}

tasks.named("preBuild") { dependsOn(bindings) }
