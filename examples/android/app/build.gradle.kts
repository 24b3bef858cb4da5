plugins {
    id("com.android.application")
    kotlin("android")
}

android {
    namespace = "org.tributary.example"
    compileSdk = 35
    defaultConfig {
        applicationId = "org.tributary.example"
        minSdk = 26
        targetSdk = 35
        versionCode = 1
        versionName = "1"
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
    }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }
}

kotlin { jvmToolchain(17) }

dependencies { implementation(project(":tributary")) }
