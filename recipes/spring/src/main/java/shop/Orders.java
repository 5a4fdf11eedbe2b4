package shop;

// --8<-- [start:orders]
import dev.redlock.Lease;
import dev.redlock.LockOptions;
import dev.redlock.Redlock;
import java.time.Duration;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Propagation;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionTemplate;

@Service
class Orders {
    private static final LockOptions WAIT = new LockOptions().wait(Duration.ofSeconds(2));
    private final Redlock locks;
    private final TransactionTemplate transaction;
    private final JdbcClient database;
    private final Payments payments;

    Orders(Redlock locks, TransactionTemplate transaction, JdbcClient database, Payments payments) {
        this.locks = locks;
        this.transaction = transaction;
        this.database = database;
        this.payments = payments;
    }

    // NEVER: fails if the caller has a transaction, which would commit after the release.
    @Transactional(propagation = Propagation.NEVER)
    public void pay(long order) throws InterruptedException {
        // The transaction is the inner block: it commits first.
        try (Lease lease = locks.lock("order:" + order, WAIT).acquireBlocking()) {
            transaction.executeWithoutResult(status -> {
                boolean paid = database.sql("SELECT paid FROM purchase WHERE id = ?") // read after the acquire
                        .param(order).query(Boolean.class).single();
                if (paid) return;
                lease.check();
                payments.charge(order, lease.getToken());
                database.sql("UPDATE purchase SET paid = TRUE WHERE id = ?").param(order).update();
                lease.check(); // throws LockLost after a loss, and so rolls back
            });
        }
    }
}
