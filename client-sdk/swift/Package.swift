// swift-tools-version: 5.9
// `./build.sh` on a Mac makes CTributary.xcframework and Sources/Tributary/Tributary.swift first.
import PackageDescription

let package = Package(
    name: "Tributary",
    platforms: [.iOS(.v15), .macOS(.v12)],
    products: [.library(name: "Tributary", targets: ["Tributary"])],
    targets: [
        .binaryTarget(name: "CTributary", path: "CTributary.xcframework"),
        .target(name: "Tributary", dependencies: ["CTributary"]),
    ]
)
