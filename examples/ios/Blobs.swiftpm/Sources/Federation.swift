import Foundation
import Tributary

/// Whose participant this is. A real app gets the token from its own server, one for each device.
enum Federation {
    static let server = "https://federation.example:8443"
    static let authority = "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n"
    static let token = "…"
    static let task = "blobs"

    private static let running = Running()

    /// Takes part until the task is over or the Swift task is cancelled; then the participant rests, for the next call. An app in front counts as a
    /// device that is in use, so a user who asks for a training now says with `whileInUse` that this does not matter; the device must charge all
    /// the same, on an unmetered network.
    static func takePart(whileInUse: Bool = false) async throws {
        let me = try await running.participant(whileInUse: whileInUse)
        let blobs = Blobs(seed: 1)
        do {
            try await withTaskCancellationHandler {
                for try await job in me.jobs() {
                    try train(job, blobs)
                }
            } onCancel: {
                // A training under way learns by this that it should pause. Closing the participant would give its round up.
                try? me.pause()
            }
        } catch is CancellationError {
            return
        } catch {
            await running.end()
            throw error
        }
        if !Task.isCancelled {
            await running.end()
        }
    }

    /// What the model is good for on this device: from the journal, so also without a network, and from whoever has the journal open.
    static func used() async throws -> String {
        let model: Model?
        let me = await running.current
        if let me {
            model = try await me.model(of: task)
        } else {
            model = try await Model.loaded(options: options(), task: task, keyStore: keys)
        }
        guard let model else { return "There is no model yet." }
        let right = Int(100 * Blobs(seed: 1).accuracy(model.values()))
        return "Version \(model.version() ?? 0) gets \(right) % of my examples right."
    }

    private static func train(_ job: Job, _ blobs: Blobs) throws {
        let plan = try job.about().plan
        guard plan.isPlainSgd, plan.steps == nil else {
            return try job.refuse("this app trains by plain gradient descent alone")
        }
        // A job that was paused comes again, with the model as it was received; what was trained is in the checkpoint.
        let received = try job.floats()
        let accuracy = blobs.accuracy(received)
        var done = try Training.begun(job.checkpoint(), or: received)
        while done.epochs < plan.epochs {
            if job.isOverdue() {
                return
            }
            let shouldPause = job.shouldPause()
            if shouldPause || job.isCheckpointDue() {
                try job.save(done.bytes())
            }
            if shouldPause {
                return
            }
            blobs.trainEpoch(&done.parameters, batchSize: plan.batchSize, learningRate: plan.learningRate)
            done.epochs += 1
        }
        try job.finish(done.parameters, examples: blobs.count, metrics: ["accuracy": accuracy])
    }

    fileprivate static var keys: KeychainStore {
        KeychainStore(journal: task)
    }

    fileprivate static func options() throws -> ParticipantOptions {
        var journal = URL.applicationSupportDirectory.appending(path: "journal", directoryHint: .isDirectory)
        try FileManager.default.createDirectory(at: journal, withIntermediateDirectories: true)
        // A participant's journal must not be restored from a copy.
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        try journal.setResourceValues(values)
        return ParticipantOptions(server: server, journal: journal, caPem: authority, token: token, task: task)
    }
}

/// The participant of this process, from its start until its task is over: between two runs in the background it rests.
private actor Running {
    private(set) var current: Participant?
    private var isWhileInUse = false

    func participant(whileInUse: Bool) async throws -> Participant {
        if let current, isWhileInUse == whileInUse {
            try current.resume()
            return current
        }
        await end()
        var options = try Federation.options()
        if whileInUse {
            options.deviceConditions = DevicePolicy(idle: false)
        }
        let started = try await Participant.start(
            options: options, conditions: await AppleConditions(), keyStore: Federation.keys)
        (current, isWhileInUse) = (started, whileInUse)
        return started
    }

    func end() async {
        guard let ending = current else { return }
        current = nil
        _ = try? await ending.close()
    }
}
