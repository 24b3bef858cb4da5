#if canImport(Security)
import Foundation
import Security

/// The secrets of one journal in the Keychain of this device: readable after the first unlock, never in a backup or on another
/// device, since a journal that is restored from a copy must not open. `journal` names the journal among those of the app.
public final class KeychainStore: KeyStore {
    private let journal: String

    public init(journal: String) {
        self.journal = journal
    }

    public func load(name: String) throws -> Data? {
        var query = item(name)
        query[kSecReturnData] = true
        var found: CFTypeRef?
        switch SecItemCopyMatching(query as CFDictionary, &found) {
        case errSecSuccess: return found as? Data
        case errSecItemNotFound: return nil
        case let status: throw failed("read", name, status)
        }
    }

    public func save(name: String, secret: Data) throws {
        let value: [CFString: Any] = [kSecValueData: secret]
        var status = SecItemUpdate(item(name) as CFDictionary, value as CFDictionary)
        if status == errSecItemNotFound {
            let accessible: [CFString: Any] = [kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly]
            let new = item(name).merging(value) { $1 }.merging(accessible) { $1 }
            status = SecItemAdd(new as CFDictionary, nil)
        }
        guard status == errSecSuccess else { throw failed("write", name, status) }
    }

    private func item(_ name: String) -> [CFString: Any] {
        [
            kSecClass: kSecClassGenericPassword,
            kSecAttrService: "org.tributary.\(journal)",
            kSecAttrAccount: name,
            kSecAttrSynchronizable: false,
            kSecUseDataProtectionKeychain: true,
        ]
    }

    private func failed(_ what: String, _ name: String, _ status: OSStatus) -> CallbackError {
        let text = SecCopyErrorMessageString(status, nil) as String? ?? "status \(status)"
        return .Failed(reason: "cannot \(what) \(name): \(text)")
    }
}
#endif
