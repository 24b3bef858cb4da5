#if os(iOS)
import BackgroundTasks
import Foundation
import Network
import UIKit

/// What this device is like. `deviceConditions` of the options say what is asked of it. A device in low power mode counts as one that does
/// not charge, and one whose app is in front as one that is in use: a training that the user asks for needs `DevicePolicy(idle: false)`.
public final class AppleConditions: DeviceConditions {
    @MainActor
    public init() {
        UIDevice.current.isBatteryMonitoringEnabled = true
        known.look()
        let changes = [
            UIDevice.batteryStateDidChangeNotification, UIDevice.batteryLevelDidChangeNotification,
            UIApplication.didBecomeActiveNotification, UIApplication.willResignActiveNotification,
            UIApplication.didEnterBackgroundNotification,
        ]
        observers = changes.map { name in
            NotificationCenter.default.addObserver(forName: name, object: nil, queue: .main) { [known] _ in
                MainActor.assumeIsolated { known.look() }
            }
        }
        path.pathUpdateHandler = { [known] path in
            known.set(unmetered: path.status == .satisfied && !path.isExpensive && !path.isConstrained)
        }
        path.start(queue: DispatchQueue(label: "org.tributary.network"))
    }

    private let known = Known()
    private let path = NWPathMonitor()
    private let observers: [NSObjectProtocol]

    deinit {
        path.cancel()
        observers.forEach(NotificationCenter.default.removeObserver)
    }

    public func state() throws -> DeviceState {
        let process = ProcessInfo.processInfo
        var state = known.state
        if process.isLowPowerModeEnabled {
            state.charging = false
        }
        state.thermal =
            switch process.thermalState {
            case .nominal: .nominal
            case .fair: .fair
            case .serious: .serious
            case .critical: .critical
            @unknown default: nil
            }
        return state
    }
}

/// What only the main thread or the system's own may ask for.
private final class Known: @unchecked Sendable {
    private let lock = NSLock()
    private var found = DeviceState()

    var state: DeviceState {
        lock.withLock { found }
    }

    func set(unmetered: Bool) {
        lock.withLock { found.unmetered = unmetered }
    }

    @MainActor
    func look() {
        let device = UIDevice.current
        let isCharging = device.batteryState == .charging || device.batteryState == .full
        let percent = device.batteryLevel < 0 ? nil : UInt8(device.batteryLevel * 100)
        let isIdle = UIApplication.shared.applicationState != .active
        lock.withLock {
            found.charging = isCharging
            found.batteryPercent = percent
            found.idle = isIdle
        }
    }
}

/// Takes part for a while, whenever the system has time for it. `register` before the app has finished launching; the identifier must
/// be in the app's Info.plist under `BGTaskSchedulerPermittedIdentifiers`, and `processing` under `UIBackgroundModes`.
public enum BackgroundTraining {
    /// `work` takes part until it is cancelled, pauses its participant then, and returns once the training under way has saved a checkpoint; it
    /// keeps the participant for its next run, since closing it would give the round up (`examples/ios`). The system may also kill the process
    /// at any instant: the journal knows how to go on.
    public static func register(_ identifier: String, work: @escaping @Sendable () async -> Void) {
        BGTaskScheduler.shared.register(forTaskWithIdentifier: identifier, using: nil) { task in
            schedule(identifier)
            let training = Task {
                await work()
                task.setTaskCompleted(success: !Task.isCancelled)
            }
            task.expirationHandler = { training.cancel() }
        }
    }

    /// Asks for the next run: on power and with a network.
    public static func schedule(_ identifier: String, after seconds: TimeInterval = 6 * 3600) {
        let request = BGProcessingTaskRequest(identifier: identifier)
        request.requiresExternalPower = true
        request.requiresNetworkConnectivity = true
        request.earliestBeginDate = Date(timeIntervalSinceNow: seconds)
        // Refused where the app may not run in the background, which is the user's choice.
        try? BGTaskScheduler.shared.submit(request)
    }
}
#endif
