// swift-tools-version: 5.9
// Open this folder in Xcode; run `client-sdk/swift/build.sh` first.
import AppleProductTypes
import PackageDescription

let package = Package(
    name: "Blobs",
    platforms: [.iOS("17.0")],
    products: [
        .iOSApplication(
            name: "Blobs",
            targets: ["Blobs"],
            bundleIdentifier: "org.tributary.example",
            displayVersion: "1",
            bundleVersion: "1",
            supportedDeviceFamilies: [.phone, .pad],
            supportedInterfaceOrientations: [.portrait],
            additionalInfoPlistContentFilePath: "Info.plist"
        )
    ],
    dependencies: [.package(path: "../../../client-sdk/swift")],
    targets: [
        .executableTarget(
            name: "Blobs",
            dependencies: [.product(name: "Tributary", package: "swift")],
            path: "Sources"
        )
    ]
)
