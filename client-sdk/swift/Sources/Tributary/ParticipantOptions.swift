import Foundation

/// The settings of a participant. What is nil or empty is left to the library, which has the defaults that are named here.
///
/// ```swift
/// var options = ParticipantOptions(server: "https://federation.example:8443", journal: folder, caPem: authority, token: token)
/// options.task = "digits"
/// options.secureAggregation = SecurityPolicy(minCohort: 50)
/// ```
///
/// One that cannot be used is refused where they are given (`Participant.start`, `Machine.open`, `Model.load`), with
/// `TributaryError.Configuration`.
public struct ParticipantOptions: Encodable, Equatable, Sendable {
    /// The value of one of the `attributes`: `["memory_gb": 4, "language": "de"]`.
    public enum Attribute: Equatable, Sendable {
        /// A number; finite.
        case number(Double)
        /// A text, such as a language.
        case text(String)
    }

    /// The coordinator, `https://host:port`.
    public var server: String
    /// Folder of the participant's state: its key, certificate and pending update; created if absent. Used by one participant at a time, and
    /// never restored from a copy.
    public var journal: URL
    /// The authority that the coordinator's certificate must come from, as PEM; no other is trusted. Required, but with `signedRequests` and
    /// `membersCaPem`.
    public var caPem: String?
    /// The one-time token to enrol with. Default: none; not needed once the journal has a certificate.
    public var token: String?
    /// The task that it has data for; the participant ends when the task is over. Default: it takes any task, and then waits for the next
    /// one.
    public var task: String?
    /// Its name, unless the token says one. Default: the token's.
    public var name: String?
    /// Training examples that the coordinator is told of, until the first job is finished or `setExamples` says otherwise. Default: 0.
    public var examples: Int?
    /// Whether the app's training heeds the anchor, the frozen tensors and the correction of a job, as `Job.train` does. Rounds whose jobs
    /// have any are refused otherwise. Default: no.
    public var trainsWithin: Bool?
    /// Whether the app's training trains adapters of a job's `base()`, as `Job.train` does. Rounds with such jobs are refused otherwise.
    /// Default: no.
    public var trainsAdapters: Bool?
    /// Whether the app gives its rows for analyses (a job's `analysis()` and `answer`). Their rounds are refused otherwise. Default: no.
    public var answersAnalyses: Bool?
    /// File of the model, as safetensors, that apps bring to tasks with `base_sha256`; read for each such job. Default: none.
    public var baseModel: URL?
    /// What tasks may select by, such as the region.
    public var labels: [String: String]
    /// What the criteria of a task may ask the device about. The values never leave it.
    public var attributes: [String: Attribute]
    /// File of the key that seals the journal; not with a key store. Default: the journal's name with `.key`.
    public var journalKey: URL?
    /// File that tells the journal's latest state, best on another disk than the journal; not with a key store. Default: the journal's name
    /// with `.generation`.
    public var journalGeneration: URL?
    /// The authorities that certify participants, as PEM, at most 8. A coordinator that holds their key can invent participants and so read
    /// updates. Default: `caPem`.
    public var membersCaPem: String?
    /// The keys that may sign the records of model versions, 64 hexadecimal digits each, as `tributary audit head` shows them. Default: the
    /// first that signs, from then on.
    public var coordinatorKeys: [String]
    /// For a coordinator behind a balancer that ends TLS: each request is signed. The balancer then reads the token, models, and updates
    /// that are not masked. Default: no.
    public var signedRequests: Bool?
    /// With `signedRequests`: the authority of the balancer's certificate, as PEM. Default: what the device trusts.
    public var balancerCaPem: String?
    /// The HTTP proxy that leads to the coordinator, `http://[USER:PASSWORD@]HOST[:PORT]`, or `none`. Default: the environment variables
    /// `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`. An HTTP client of the app's own has a setting of its own.
    public var proxy: String?
    /// Bytes of the largest model (4 for each parameter), file, local state and encoded update that is accepted, each; a checkpoint may have
    /// four times as many. Default: 256 000 000.
    public var maxModelBytes: Int?
    /// The SHA-256 digests of the graph files that are accepted, 64 hexadecimal digits each, as `sha256sum` shows them. Tasks with other
    /// graphs are refused. Default: any graph.
    public var acceptedGraphs: [String]
    /// Whether the journal keeps a model of each task for the app (`model(of:)`), and the participant fetches the last version once the task
    /// is over. All of them take at most `maxModelBytes`; the oldest are dropped first. Default: yes.
    public var keepModels: Bool?
    /// Shortest time between two checkpoints that a training writes to the journal, in seconds, rounded to milliseconds. A process that is
    /// killed while it trains repeats what it had trained since the last one; before a training rests, the newest is written. Default: 30.
    public var checkpointEvery: TimeInterval?
    /// Time after which the device's conditions are checked again during a training, and after which a `Machine` asks it to pause; in
    /// seconds, rounded to milliseconds, at least 0.01. Default: 1.
    public var trainingSlice: TimeInterval?
    /// Makes training and rounding repeatable, for experiments; keys, masks and noise stay random. Default: none.
    public var seed: UInt64?
    /// The least that it requires of secure aggregation. Default: `SecurityPolicy()`.
    public var secureAggregation: SecurityPolicy?
    /// Limits beyond what a task promises. Default: `PrivacyPolicy()`.
    public var privacy: PrivacyPolicy?
    /// What must hold of the device for it to work. Default: nothing; `DevicePolicy()` where the app tells what the device is like.
    public var deviceConditions: DevicePolicy?

    public init(
        server: String,
        journal: URL,
        caPem: String? = nil,
        token: String? = nil,
        task: String? = nil,
        name: String? = nil,
        examples: Int? = nil,
        trainsWithin: Bool? = nil,
        trainsAdapters: Bool? = nil,
        answersAnalyses: Bool? = nil,
        baseModel: URL? = nil,
        labels: [String: String] = [:],
        attributes: [String: Attribute] = [:],
        journalKey: URL? = nil,
        journalGeneration: URL? = nil,
        membersCaPem: String? = nil,
        coordinatorKeys: [String] = [],
        signedRequests: Bool? = nil,
        balancerCaPem: String? = nil,
        proxy: String? = nil,
        maxModelBytes: Int? = nil,
        acceptedGraphs: [String] = [],
        keepModels: Bool? = nil,
        checkpointEvery: TimeInterval? = nil,
        trainingSlice: TimeInterval? = nil,
        seed: UInt64? = nil,
        secureAggregation: SecurityPolicy? = nil,
        privacy: PrivacyPolicy? = nil,
        deviceConditions: DevicePolicy? = nil
    ) {
        self.server = server
        self.journal = journal
        self.caPem = caPem
        self.token = token
        self.task = task
        self.name = name
        self.examples = examples
        self.trainsWithin = trainsWithin
        self.trainsAdapters = trainsAdapters
        self.answersAnalyses = answersAnalyses
        self.baseModel = baseModel
        self.labels = labels
        self.attributes = attributes
        self.journalKey = journalKey
        self.journalGeneration = journalGeneration
        self.membersCaPem = membersCaPem
        self.coordinatorKeys = coordinatorKeys
        self.signedRequests = signedRequests
        self.balancerCaPem = balancerCaPem
        self.proxy = proxy
        self.maxModelBytes = maxModelBytes
        self.acceptedGraphs = acceptedGraphs
        self.keepModels = keepModels
        self.checkpointEvery = checkpointEvery
        self.trainingSlice = trainingSlice
        self.seed = seed
        self.secureAggregation = secureAggregation
        self.privacy = privacy
        self.deviceConditions = deviceConditions
    }

    private enum CodingKeys: String, CodingKey {
        case server, journal, token, task, name, examples, labels, attributes, seed, privacy, proxy
        case caPem = "ca_pem"
        case trainsWithin = "trains_within"
        case trainsAdapters = "trains_adapters"
        case answersAnalyses = "answers_analyses"
        case baseModel = "base_model"
        case journalKey = "journal_key"
        case journalGeneration = "journal_generation"
        case membersCaPem = "members_ca_pem"
        case coordinatorKeys = "coordinator_keys"
        case signedRequests = "signed_requests"
        case balancerCaPem = "balancer_ca_pem"
        case maxModelBytes = "max_model_bytes"
        case acceptedGraphs = "accepted_graphs"
        case keepModels = "keep_models"
        case checkpointEvery = "checkpoint_every_ms"
        case trainingSlice = "training_slice_ms"
        case secureAggregation = "secure_aggregation"
        case deviceConditions = "device_conditions"
    }

    /// What was set, by the names that the library has for it; the token, too.
    public func encode(to encoder: Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(server, forKey: .server)
        try fields.encodePath(journal, forKey: .journal)
        try fields.encodeIfPresent(caPem, forKey: .caPem)
        try fields.encodeIfPresent(token, forKey: .token)
        try fields.encodeIfPresent(task, forKey: .task)
        try fields.encodeIfPresent(name, forKey: .name)
        try fields.encodeIfPresent(examples, forKey: .examples)
        try fields.encodeIfPresent(trainsWithin, forKey: .trainsWithin)
        try fields.encodeIfPresent(trainsAdapters, forKey: .trainsAdapters)
        try fields.encodeIfPresent(answersAnalyses, forKey: .answersAnalyses)
        try fields.encodePath(baseModel, forKey: .baseModel)
        try fields.encodeIfPresent(labels.isEmpty ? nil : labels, forKey: .labels)
        try fields.encodeIfPresent(attributes.isEmpty ? nil : attributes, forKey: .attributes)
        try fields.encodePath(journalKey, forKey: .journalKey)
        try fields.encodePath(journalGeneration, forKey: .journalGeneration)
        try fields.encodeIfPresent(membersCaPem, forKey: .membersCaPem)
        try fields.encodeIfPresent(coordinatorKeys.isEmpty ? nil : coordinatorKeys, forKey: .coordinatorKeys)
        try fields.encodeIfPresent(signedRequests, forKey: .signedRequests)
        try fields.encodeIfPresent(balancerCaPem, forKey: .balancerCaPem)
        try fields.encodeIfPresent(proxy, forKey: .proxy)
        try fields.encodeIfPresent(maxModelBytes, forKey: .maxModelBytes)
        try fields.encodeIfPresent(acceptedGraphs.isEmpty ? nil : acceptedGraphs, forKey: .acceptedGraphs)
        try fields.encodeIfPresent(keepModels, forKey: .keepModels)
        try fields.encodeMilliseconds(checkpointEvery, forKey: .checkpointEvery)
        try fields.encodeMilliseconds(trainingSlice, forKey: .trainingSlice)
        try fields.encodeIfPresent(seed, forKey: .seed)
        try fields.encodeIfPresent(secureAggregation, forKey: .secureAggregation)
        try fields.encodeIfPresent(privacy, forKey: .privacy)
        try fields.encodeIfPresent(deviceConditions, forKey: .deviceConditions)
    }

    /// As the library reads them.
    func json() throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        do {
            return String(decoding: try encoder.encode(self), as: UTF8.self)
        } catch EncodingError.invalidValue(let value, let context) {
            let name = context.codingPath.map { $0.stringValue }.joined(separator: ".")
            throw TributaryError.Configuration(message: "`\(name)` cannot be used: \(value)")
        }
    }
}

extension ParticipantOptions: CustomStringConvertible, CustomReflectable {
    /// What was set, without token, proxy and the values of the attributes, which are to stay on the device.
    public var description: String {
        var shown = self
        shown.token = token == nil ? nil : "…"
        shown.proxy = proxy == nil ? nil : "…"
        shown.attributes = attributes.mapValues { _ in Attribute.text("…") }
        let json = (try? shown.json()) ?? " of \(server) that cannot be used"
        return "ParticipantOptions\(json)"
    }

    /// Shows no more than the description.
    public var customMirror: Mirror {
        Mirror(self, children: ["shown": description])
    }
}

extension ParticipantOptions.Attribute: Encodable {
    public func encode(to encoder: Encoder) throws {
        var value = encoder.singleValueContainer()
        switch self {
        case .number(let number): try value.encode(number)
        case .text(let text): try value.encode(text)
        }
    }
}

extension ParticipantOptions.Attribute: ExpressibleByStringLiteral, ExpressibleByFloatLiteral, ExpressibleByIntegerLiteral {
    public init(stringLiteral text: String) {
        self = .text(text)
    }

    public init(floatLiteral number: Double) {
        self = .number(number)
    }

    public init(integerLiteral number: Int) {
        self = .number(Double(number))
    }
}
