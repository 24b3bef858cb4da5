pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositories {
        google()
        mavenCentral()
    }
}

rootProject.name = "tributary-example"
include(":app", ":tributary")
project(":tributary").projectDir = file("../../client-sdk/kotlin")
