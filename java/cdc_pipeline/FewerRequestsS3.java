package cdc_pipeline;

import java.io.IOException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * S3A without requests whose answers are known: the length of a data file or a commit before it is read, and whether a
 * log has a folder. Such files never change. Each read names the ETag of the known version, so that another file which
 * has taken its place is an error.
 */
public class FewerRequestsS3 extends S3AFileSystem {
  private static final Pattern DATA_FILE = Pattern.compile("part-.*\\.parquet");
  private static final Pattern COMMIT = Pattern.compile("\\d{20}\\.json");
  private static final int MOST_KNOWN = 20_000;

  private final Map<Path, FileStatus> known =
      Collections.synchronizedMap(
          new LinkedHashMap<>(16, 0.75f, true) {
            private static final long serialVersionUID = 1;

            @Override
            protected boolean removeEldestEntry(Map.Entry<Path, FileStatus> eldest) {
              return size() > MOST_KNOWN;
            }
          });

  /** Remembers the commits of a listing. */
  void remember(FileStatus[] listed) {
    for (FileStatus file : listed) {
      if (COMMIT.matcher(file.getPath().getName()).matches()) {
        known.put(file.getPath(), file);
      }
    }
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    if (!DATA_FILE.matcher(path.getName()).matches()) {
      return super.getFileStatus(path);
    }
    FileStatus status = known.get(makeQualified(path));
    if (status == null) {
      status = super.getFileStatus(path);
      known.put(status.getPath(), status);
    }
    return status;
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    FileStatus status = known.get(makeQualified(path));
    if (status == null) {
      return super.open(path, bufferSize);
    }
    return FutureIO.awaitFuture(openFile(path).withFileStatus(status).build());
  }

  @Override
  public CompletableFuture<FSDataInputStream> openFileWithOptions(Path path, OpenFileParameters parameters)
      throws IOException {
    FileStatus status = known.get(makeQualified(path));
    if (status != null && parameters.getStatus() == null) {
      parameters.withStatus(status);
    }
    return super.openFileWithOptions(path, parameters);
  }

  /** S3 has no folders: a log needs none. */
  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    return path.toString().contains("/_delta_log") || super.mkdirs(path, permission);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    known.clear();
    return super.delete(path, recursive);
  }

  @Override
  public boolean rename(Path source, Path target) throws IOException {
    known.clear();
    return super.rename(source, target);
  }
}
