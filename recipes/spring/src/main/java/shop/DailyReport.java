package shop;

// --8<-- [start:job]
import dev.redlock.Lease;
import dev.redlock.LockOptions;
import dev.redlock.LockTimeout;
import dev.redlock.Redlock;
import java.time.Duration;
import java.time.LocalDate;
import java.time.ZoneOffset;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;
import org.springframework.transaction.support.TransactionTemplate;

@Component
class DailyReport {
    // Longer than the job and a lease: if a replica dies, another one takes its place.
    private static final LockOptions WAIT = new LockOptions().wait(Duration.ofMinutes(15));
    private final Redlock locks;
    private final TransactionTemplate transaction;
    private final JdbcClient database;
    private final Payments payments;

    DailyReport(Redlock locks, TransactionTemplate transaction, JdbcClient database, Payments payments) {
        this.locks = locks;
        this.transaction = transaction;
        this.database = database;
        this.payments = payments;
    }

    @Scheduled(cron = "${report.cron}", zone = "UTC") // in every replica
    void run() throws InterruptedException {
        LocalDate day = LocalDate.now(ZoneOffset.UTC);
        try (Lease lease = locks.lock("daily-report", WAIT).acquireBlocking()) {
            // A replica whose clock is late comes after the release. The lock cannot stop it, the row does.
            int rows = database.sql("SELECT count(*) FROM report WHERE report_day = ?")
                    .param(day).query(Integer.class).single();
            if (rows > 0) return;
            String report = payments.report(day); // takes minutes
            transaction.executeWithoutResult(status -> {
                database.sql("INSERT INTO report VALUES (?, ?)").params(day, report).update();
                lease.check();
            });
        } catch (LockTimeout busy) {
            // Another replica is at it.
        }
    }
}
