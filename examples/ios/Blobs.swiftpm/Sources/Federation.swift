import Foundation
import Tributary

/// Whose participant this is. A real app gets the token from its own server, one for each device.
enum Federation {
    static let server = "https://federation.example:8443"
    static let authority = "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n"
    static let token = "…"

    /// Takes part until the task is over or the Swift task is cancelled. An app in front counts as a device that is in use, so a user who asks
    /// for a training now says with `whileInUse` that this does not matter; the device must charge all the same, on an unmetered network.
    static func takePart(whileInUse: Bool = false) async throws {
        var journal = URL.applicationSupportDirectory.appending(path: "journal", directoryHint: .isDirectory)
        try FileManager.default.createDirectory(at: journal, withIntermediateDirectories: true)
        // A participant's journal must not be restored from a copy.
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        try journal.setResourceValues(values)

        var options: [String: Any] = [
            "server": server, "ca_pem": authority, "token": token, "task": "blobs", "journal": journal.path,
        ]
        if whileInUse {
            options["device_conditions"] = ["idle": false]
        }
        let me = try await Participant.start(
            options: options,
            conditions: await AppleConditions(),
            keyStore: KeychainStore(journal: "blobs")
        )
        do {
            let blobs = Blobs(seed: 1)
            for try await job in me.jobs() {
                try train(job, blobs)
            }
            try await me.close()
        } catch {
            try? await me.close()
            throw error
        }
    }

    private static func train(_ job: Job, _ blobs: Blobs) throws {
        let plan = try job.about().plan
        guard plan.isPlainSgd, plan.steps == nil else {
            return try job.refuse("this app trains by plain gradient descent alone")
        }
        var parameters = try job.floats()
        let accuracy = blobs.accuracy(parameters)
        for _ in 0..<plan.epochs {
            if Task.isCancelled || job.isOverdue() {
                return try job.fail("there is no more time")
            }
            blobs.trainEpoch(&parameters, plan.learningRate)
        }
        try job.finish(parameters, examples: blobs.count, metrics: ["accuracy": accuracy])
    }
}
