import Foundation

/// What the programs of this folder are given of the options, by the names of the library.
private struct Given: Decodable {
    struct Security: Decodable {
        let minCohort: Int?
        let minToleratedColluders: Int?
    }

    struct Privacy: Decodable {
        struct Lifetime: Decodable {
            let epsilon: Double
        }

        let maxEpsilon: Double?
        let lifetime: Lifetime?
    }

    let server: String
    let journal: String
    let caPem: String?
    let token: String?
    let task: String?
    let checkpointEveryMs: Double?
    let seed: UInt64?
    let secureAggregation: Security?
    let privacy: Privacy?
}

/// The options in a file of `.ci/sdks/participants.sh`; those that `Given` has not are refused.
func readOptions(_ path: String) throws -> ParticipantOptions {
    let text = try String(contentsOfFile: path, encoding: .utf8)
    let given: Given = try decoded(text)
    let options = ParticipantOptions(
        server: given.server,
        journal: URL(fileURLWithPath: given.journal),
        caPem: given.caPem,
        token: given.token,
        task: given.task,
        checkpointEvery: given.checkpointEveryMs.map { $0 / 1000 },
        seed: given.seed,
        secureAggregation: given.secureAggregation.map {
            SecurityPolicy(minCohort: $0.minCohort, minToleratedColluders: $0.minToleratedColluders)
        },
        privacy: given.privacy.map {
            PrivacyPolicy(maxEpsilon: $0.maxEpsilon, lifetime: $0.lifetime.map { Limit.atMost(PrivacyPolicy.Lifetime(epsilon: $0.epsilon)) })
        })
    let (written, there) = (try keys(options.json()), try keys(text))
    precondition(written == there, "of \(there) only \(written) were read")
    return options
}

/// Each option, and none as it is by default.
private let everything = ParticipantOptions(
    server: "https://localhost:1",
    journal: URL(fileURLWithPath: "/data/journal"),
    caPem: "the coordinator's authority",
    token: "the token",
    task: "digits",
    name: "phone",
    examples: 200,
    trainsWithin: true,
    trainsAdapters: true,
    answersAnalyses: true,
    baseModel: URL(fileURLWithPath: "/data/base.safetensors"),
    labels: ["region": "eu"],
    attributes: ["memory_gb": 4.5, "language": "Deutsch"],
    journalKey: URL(fileURLWithPath: "/keys/journal.key"),
    journalGeneration: URL(fileURLWithPath: "/keys/journal.generation"),
    membersCaPem: "the members' authority",
    coordinatorKeys: [String(repeating: "ab", count: 32)],
    signedRequests: true,
    balancerCaPem: "the balancer's authority",
    proxy: "http://ward:secret@proxy.example:3128",
    maxModelBytes: 1_000_000,
    acceptedGraphs: [String(repeating: "cd", count: 32)],
    keepModels: false,
    checkpointEvery: 1.5,
    trainingSlice: 0.25,
    seed: UInt64.max,
    secureAggregation: SecurityPolicy(
        required: false,
        minCohort: 50,
        minToleratedCorrupt: 0.25,
        minToleratedColluders: 2,
        minIncluded: 30,
        minBatch: 4,
        leaveBatch: "9f2c8e51d0a7b3461f0e7c25a98d6b304e1f8a27c5d09b63a84e7120fd56c39b",
        maxStaleness: 3,
        tellLoss: true),
    privacy: PrivacyPolicy(
        required: true,
        maxEpsilon: 2.5,
        maxDelta: 0.01,
        lifetime: .atMost(PrivacyPolicy.Lifetime(epsilon: 7.5, delta: 0.02))),
    deviceConditions: DevicePolicy(
        charging: false,
        unmetered: false,
        idle: false,
        minBatteryPercent: 30,
        maxThermal: .atMost(.serious),
        maxBytesPerDay: 5_000_000,
        askAgain: 10))

/// Options of each kind are written as the library reads them. `file` is `client-sdk/ffi/tests/options.json`, and `folder` is new.
func tryOptions(_ file: String, folder: String) throws {
    let expected = try normal(Data(contentsOf: URL(fileURLWithPath: file)))
    let written = try normal(Data(everything.json().utf8))
    precondition(written == expected, "\(everything)")

    let least = try ParticipantOptions(server: "https://localhost:1", journal: URL(fileURLWithPath: "/data/journal")).json()
    precondition(least == #"{"journal":"/data/journal","server":"https://localhost:1"}"#, least)
    var empty = everything
    empty.secureAggregation = SecurityPolicy()
    empty.privacy = PrivacyPolicy(lifetime: .unlimited)
    empty.deviceConditions = DevicePolicy(maxThermal: .unlimited)
    let nulls = try empty.json()
    for part in [#""secure_aggregation":{}"#, #""privacy":{"lifetime":null}"#, #""device_conditions":{"max_thermal":null}"#] {
        precondition(nulls.contains(part), "\(empty)")
    }

    for shown in ["\(everything)", String(reflecting: everything), dumped(everything)] {
        precondition(shown.contains("digits") && shown.contains("token") && shown.contains("language"), shown)
        precondition(!shown.contains("the token") && !shown.contains("secret"), "a secret can be read")
        precondition(!shown.contains("Deutsch") && !shown.contains("4.5"), "a secret can be read")
    }

    try areTaken(URL(fileURLWithPath: folder, isDirectory: true))
    print("options in Swift: each is written as the library reads it")
}

/// The library takes each option, and what no JSON can say is told by its name.
private func areTaken(_ folder: URL) throws {
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false)
    var here = everything
    here.journal = folder.appendingPathComponent("journal")
    here.journalKey = folder.appendingPathComponent("key")
    here.journalGeneration = folder.appendingPathComponent("generation")
    let model = try Model.load(options: here, task: "absent")
    precondition(model == nil)

    var noNumber = here
    noNumber.privacy?.maxEpsilon = Double.nan
    try areRefused(noNumber, "`privacy.max_epsilon` cannot be used: nan")
    var noTime = here
    noTime.deviceConditions?.askAgain = Double.infinity
    try areRefused(noTime, "`device_conditions.ask_again_ms` cannot be used: inf")
    var noFile = here
    noFile.baseModel = URL(string: "https://localhost/base.safetensors")
    try areRefused(noFile, "`base_model` cannot be used")
    var tooSmall = here
    tooSmall.maxModelBytes = -1
    try areRefused(tooSmall, "-1")
}

private func areRefused(_ options: ParticipantOptions, _ words: String) throws {
    do {
        _ = try Model.load(options: options, task: "absent")
    } catch TributaryError.Configuration(let message) {
        precondition(message.contains(words), message)
        return
    }
    fatalError("nothing was thrown, and \(words) was expected")
}

private func dumped(_ options: ParticipantOptions) -> String {
    var text = ""
    dump(options, to: &text)
    return text
}

/// The names in an object.
private func keys(_ json: String) throws -> Set<String> {
    let object = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any]
    return Set((object ?? [:]).keys)
}

/// The same JSON, always with the same bytes.
private func normal(_ json: Data) throws -> Data {
    try JSONSerialization.data(withJSONObject: JSONSerialization.jsonObject(with: json), options: [.sortedKeys])
}
