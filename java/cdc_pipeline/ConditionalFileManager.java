package cdc_pipeline;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Writes Delta's checksum files, which appear as a whole or not at all: on S3 by one PUT that fails if the object exists
 * (If-None-Match). Spark renames a temporary file instead, in ten requests; elsewhere this class does so too.
 */
public class ConditionalFileManager extends FileSystemBasedCheckpointFileManager {
  private final Configuration configuration;

  public ConditionalFileManager(Path path, Configuration configuration) {
    super(path, configuration);
    this.configuration = configuration;
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    if (!(fs() instanceof S3AFileSystem)) {
      // Spark's default
      return new FileContextBasedCheckpointFileManager(path, configuration).createAtomic(path, overwriteIfPossible);
    }
    if (overwriteIfPossible) {
      return super.createAtomic(path, true); // a file of any size, of a streaming query
    }
    return new NewObject(path, (S3AFileSystem) fs(), new ByteArrayOutputStream());
  }

  /** Content in memory, which becomes an object when the stream is closed. */
  private static final class NewObject extends CancellableFSDataOutputStream {
    private final Path path;
    private final S3AFileSystem files;
    private final ByteArrayOutputStream content;
    private boolean hasEnded;

    NewObject(Path path, S3AFileSystem files, ByteArrayOutputStream content) {
      super(content);
      this.path = path;
      this.files = files;
      this.content = content;
    }

    @Override
    public synchronized void close() throws IOException {
      if (!hasEnded) {
        hasEnded = true;
        ConditionalS3LogStore.create(path, files, content.toByteArray());
      }
    }

    @Override
    public synchronized void cancel() {
      hasEnded = true;
    }
  }
}
