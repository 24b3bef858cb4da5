import Foundation

/// Adds a number to every parameter: the participant in Swift of `.ci/sdks.sh`, like `client-sdk/ffi/tests/c/shift.c`.
///
///     shift OPTIONS.json NUMBER [MOMENT]
///     shift options EACH.json FOLDER
///
/// With `TRIBUTARY_DRIVEN` in the environment it drives the participant itself. With `options` it tries the options (`tryOptions`).
@main
struct Shift {
    let number: Float
    let moment: String?

    static func main() async throws {
        let arguments = CommandLine.arguments
        if arguments.count == 4, arguments[1] == "options" {
            precondition(Column("known", truths: [true, false]).elements == .truths(bytes: Data([1, 0])))
            return try tryOptions(arguments[2], folder: arguments[3])
        }
        guard arguments.count >= 3, let number = Float(arguments[2]) else { fatalError("shift OPTIONS.json NUMBER [MOMENT]") }
        let options = try readOptions(arguments[1])
        let shift = Shift(number: number, moment: arguments.count > 3 ? arguments[3] : nil)
        if ProcessInfo.processInfo.environment["TRIBUTARY_DRIVEN"] == nil {
            try await shift.takePart(options)
        } else {
            try shift.drive(options)
        }
    }

    func takePart(_ options: ParticipantOptions) async throws {
        let me = try await Participant.start(options: options, onEvent: { dieAt($0.name) })
        for try await job in me.jobs() {
            try train(job)
            say("handed in")
        }
        print(try me.privacySpent())
        try await me.close()
    }

    func drive(_ options: ParticipantOptions) throws {
        let machine = try Machine.open(options: options, onEvent: { dieAt($0.name) })
        while true {
            switch try machine.tick(circumstances: Circumstances(device: DeviceState(), examples: 10)) {
            case .send, .fetch, .train, .journal:
                _ = try machine.perform { try train($0) }
            case .busy, .waitUntil:
                // Earlier than it says does no harm.
                Thread.sleep(forTimeInterval: 0.02)
            case .ended:
                print(try machine.privacySpent())
                return
            }
        }
    }

    func train(_ job: Job) throws {
        var parameters = try job.floats()
        let half = parameters.count / 2
        if let saved = job.checkpoint() {
            saved.withUnsafeBytes { bytes in
                for index in parameters.indices {
                    parameters[index] = bytes.loadUnaligned(fromByteOffset: 4 * index, as: Float.self)
                }
            }
            say("goes on from its checkpoint")
        } else {
            for index in 0..<half {
                parameters[index] += number
            }
            try job.save(parameters.withUnsafeBytes { Data($0) })
        }
        dieAt("middle")
        for index in half..<parameters.count {
            parameters[index] += number
        }
        try job.finish(parameters, examples: 10)
        dieAt("answered")
    }

    /// The process is killed as the system kills an app: nothing of it runs any more.
    func dieAt(_ now: String) {
        if moment == now {
            kill(getpid(), SIGKILL)
        }
    }

    func say(_ words: String) {
        FileHandle.standardError.write(Data("swift: \(words)\n".utf8))
    }
}
